"""Work on executors: one transport for functions and their inputs, and the jobs that use it.

Other packages use `transport.Executors`, `apply_engine.SparkEngine`, and the jobs in `examined` and
`rendered_text`.
"""
