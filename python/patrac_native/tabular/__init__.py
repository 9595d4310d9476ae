"""Tables of data: reading, preprocessing, the choices of `patrac fit`, fitting and predicting."""
