def tiles(count, shape, dtype, buffer):
    made = []
    for _ in range(count):
        made.append(nl.ndarray(shape, dtype=dtype, buffer=buffer))
    return made
