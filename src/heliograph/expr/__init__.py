"""The filter language: one expression, one meaning, in Python, over Arrow and in Spark.

    checked = expr.check(expr.parse("speed > :limit AND region = 'north'", {"limit": 300}), fmt)
    expr.python.compile_one(checked)      a function of (event, header)
    expr.arrow.mask(checked, batch)       a boolean array
    expr.spark.to_sql(checked)            a text for DataFrame.filter

Everything here is loaded when it is first used: a program without filters never loads the parser, and one
without history never loads Arrow. `docs/filters.md` is the specification.
"""
