"""Tables of data: reading, preprocessing, the choices of `patrac fit`, fitting and predicting.

Public: FitSettings, fit_table, predict_table, Preprocessor, read_table.
"""
