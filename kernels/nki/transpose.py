@nki.jit
def transpose(x):
    """x (BATCH, ROWS, COLS) -> y (BATCH, COLS, ROWS): NCHW to NHWC where the rows are channels, and back where they are
    pixels. 128 rows come on partitions as they lie in memory; the tensor engine turns 128 columns of them at a time."""
    y = nl.ndarray((BATCH, COLS, ROWS), dtype=x.dtype, buffer=nl.shared_hbm)
    x_sb = tiles(2, (128, WIDTH), x.dtype, nl.sbuf)
    y_sb = tiles(2, (128, 128), x.dtype, nl.sbuf)
    turned = tiles(8, (128, 128), x.dtype, nl.psum)
    block = 0
    turn = 0
    for n in range(BATCH):
        for r in range(0, ROWS, 128):
            rn = min(128, ROWS - r)
            for c in range(0, COLS, WIDTH):
                cn = min(WIDTH, COLS - c)
                mine = x_sb[block % 2]
                block += 1
                nisa.dma_copy(dst=mine[0:rn, 0:cn], src=x[n, r : r + rn, c : c + cn])
                for v in range(0, cn, 128):
                    vn = min(128, cn - v)
                    bank = turned[turn % 8][0:vn, 0:rn]
                    out = y_sb[turn % 2][0:vn, 0:rn]
                    turn += 1
                    nisa.nc_transpose(dst=bank, data=mine[0:rn, v : v + vn], engine=TENSOR)
                    nisa.tensor_copy(dst=out, src=bank, engine=VECTOR)
                    nisa.dma_copy(dst=y[n, c + v : c + v + vn, r : r + rn], src=out)
    return y
