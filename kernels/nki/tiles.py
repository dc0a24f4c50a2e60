def tiles(count, shape, dtype, buffer):
    """So many tiles of one shape, to be used in turn."""
    made = []
    for _ in range(count):
        made.append(nl.ndarray(shape, dtype=dtype, buffer=buffer))
    return made
