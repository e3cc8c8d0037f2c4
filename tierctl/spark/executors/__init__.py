"""Work on executors: one transport of functions and their inputs, and the bulk jobs that use it.

Other packages use `Executors` and `SparkEngine`.
"""
