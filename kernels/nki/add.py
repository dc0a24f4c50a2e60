@nki.jit
def add(a, b):
    """a + b, both (ROWS, COLS): 128 rows at a time on partitions, WIDTH columns of each, the next ones on their way."""
    y = nl.ndarray((ROWS, COLS), dtype=a.dtype, buffer=nl.shared_hbm)
    a_sb = tiles(2, (128, WIDTH), a.dtype, nl.sbuf)
    b_sb = tiles(2, (128, WIDTH), a.dtype, nl.sbuf)
    y_sb = tiles(2, (128, WIDTH), a.dtype, nl.sbuf)
    block = 0
    for r in range(0, ROWS, 128):
        rn = min(128, ROWS - r)
        for c in range(0, COLS, WIDTH):
            cn = min(WIDTH, COLS - c)
            left = a_sb[block % 2][0:rn, 0:cn]
            right = b_sb[block % 2][0:rn, 0:cn]
            total = y_sb[block % 2][0:rn, 0:cn]
            block += 1
            nisa.dma_copy(dst=left, src=a[r : r + rn, c : c + cn])
            nisa.dma_copy(dst=right, src=b[r : r + rn, c : c + cn])
            nisa.tensor_tensor(dst=total, data1=left, data2=right, op=nl.add, engine=VECTOR)
            nisa.dma_copy(dst=y[r : r + rn, c : c + cn], src=total)
    return y
