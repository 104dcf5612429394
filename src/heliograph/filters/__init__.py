"""The filter language: one expression, one meaning, in Python, over Arrow and in Spark.

    from heliograph.filters import arrow, python, spark_sql
    from heliograph.filters.check import check
    from heliograph.filters.parser import parse

    checked = check(parse("speed > :limit AND region = 'north'", {"limit": 300}), fmt)
    python.compile_one(checked)      a function of (event, header)
    arrow.mask(checked, batch)       a boolean array
    spark_sql.to_sql(checked)        a text for DataFrame.filter

This package imports nothing by itself: a program without filters never loads the parser, and one without
history never loads Arrow. `docs/reference/filters.md` is the specification.
"""
