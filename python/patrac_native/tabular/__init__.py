"""Tables of data: reading, preprocessing, the defaults of `patrac fit`, fits and predictions.

Public: FitSettings, fit_table, predict_table, Preprocessor, read_table.
"""
