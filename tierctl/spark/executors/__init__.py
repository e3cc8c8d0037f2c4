"""Work on executors: one transport for functions and their inputs, and the jobs that use it.

Other packages use `transport.Executors`, `engine.SparkEngine` and the jobs `fold`, `format`, `fetch`,
`verify`, `tier` and `cache_files`.
"""
