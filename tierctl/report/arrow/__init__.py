"""Results as tables of Arrow, with the columns of `report.tables`.

Other packages use `result.TableResult` and `table.arrow_table`.
"""
