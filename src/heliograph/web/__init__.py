"""The page of a station: what a person looks at in a browser, served by the station itself.

Plain JavaScript and CSS in the wheel, Starlette and uvicorn from the extra `page`; nothing is fetched from
elsewhere. While nobody looks, nothing is sampled.
"""
