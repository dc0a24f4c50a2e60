@nki.jit
def convolution(
    x,
    w,
    bias,  #? bias
    residual,  #? residual
):
    """Returns y. What is on the chip is allocated here; the first dimension of a tile is the partition."""
    y = nl.ndarray((N, K, Y_H, Y_W), dtype=x.dtype, buffer=nl.shared_hbm)  #? !nhwc
    y = nl.ndarray((N, Y_H * Y_W, K), dtype=x.dtype, buffer=nl.shared_hbm)  #? nhwc
    x = x.reshape((N, H * W, C))  #? nhwc & !residual
    x, residual = x.reshape((N, H * W, C)), residual.reshape((N, P * Q, K))  #? nhwc & residual
    x_sb = tiles(X_BUFFERS, (128, C_TILES, IMAGES, ROWS_IN, COLS_IN), x.dtype, nl.sbuf)
    w_sb = tiles(W_BUFFERS, (128, C_TILES, R * S, K_PART), x.dtype, nl.sbuf)
    raw = tiles(2, (128, 128, R * S), x.dtype, nl.sbuf)  #? !depthwise & !nhwc
    raw = tiles(2, (128, R * S, 128), x.dtype, nl.sbuf)  #? !depthwise & nhwc
    raw = tiles(2, (128, R * S), nl.float32, nl.sbuf)  #? depthwise
    identity = nl.shared_identity_matrix(128, dtype=x.dtype)  #? depthwise
    px = tiles(2, (128, max(C_PART, 128)), x.dtype, nl.sbuf)  #? nhwc
    bias_sb = tiles(W_BUFFERS, (128, K_TILES), nl.float32, nl.sbuf)  #? bias
    r_sb = tiles(Y_BUFFERS, (128, 1, IMAGES, ROWS_C, COLS_C), x.dtype, nl.sbuf)  #? residual
    z_sb = tiles(2, (128, 512), nl.float32, nl.sbuf)  #? scratch
    v_sb = tiles(Y_BUFFERS, (128, IMAGES, ROWS_C, COLS_C), V_DTYPE, nl.sbuf)  #? pool
    sum_sb = tiles(Y_BUFFERS, (128, IMAGES, ROWS, COLS), V_DTYPE, nl.sbuf)  #? average
    y_sb = tiles(Y_BUFFERS, (128, IMAGES, ROWS, COLS), x.dtype, nl.sbuf)
    banks = tiles(BANKS, (128, 512), nl.float32, nl.psum)
    turned = tiles(2, (128, 512), x.dtype, nl.psum)  #? !depthwise | nhwc
    for mine in raw:  #? grouped
        nisa.memset(dst=mine, value=0.0, engine=GPSIMD)  # what lies between the groups  #? grouped
    part, block, tile, bank = 0, 0, 0, 0  #? !one_part
    block, tile, bank = 0, 0, 0  #? one_part
    c0, cn, k0, kn = 0, C, 0, K  #? one_part
    for c0 in range(0, C, C_PART):  #: one_part
        cn = min(C_PART, C - c0)  #? !one_part
        k_end = min((c0 // C_PART + 1) * K_GROUPS, K)  #? !one_block
        k0, kn = c0 // C_PART * K_GROUPS, min(K_GROUPS, K - c0 // C_PART * K_GROUPS)  #? one_block & !one_part
        for k0 in range(c0 // C_PART * K_GROUPS, k_end, K_PART):  #: one_block
            kn = min(K_PART, k_end - k0)  #? !one_block
            weights, part = w_sb[part % W_BUFFERS], part + 1  #? !one_part & !bias
            weights, biases, part = w_sb[part % W_BUFFERS], bias_sb[part % W_BUFFERS], part + 1  #? !one_part & bias
            weights = w_sb[0]  #? one_part & !bias
            weights, biases = w_sb[0], bias_sb[0]  #? one_part & bias
            load_weights(weights, raw, turned, w, cn, k0, kn)  #? !depthwise
            load_weights(weights, raw[k0 // 128 % 2], identity, w, cn, k0)  #? depthwise
            for k in range(0, kn, 128):  #? bias
                kw = min(128, kn - k)  #? bias
                src = bias.reshape((K, 1))[k0 + k : k0 + k + kw, 0:1]  #? bias
                nisa.dma_copy(dst=biases[0:kw, k // 128 : k // 128 + 1], src=src)  #? bias
            for n in range(0, N, IMAGES):
                images = min(IMAGES, N - n)
                for y0 in range(0, Y_H, ROWS):
                    y1 = min(y0 + ROWS, Y_H)
                    p0, p1 = y0, y1  #? !pool
                    p0 = max(0, y0 * POOL_STRIDE_H - POOL_TOP)  #? pool
                    p1 = min(P, (y1 - 1) * POOL_STRIDE_H - POOL_TOP + POOL_H)  #? pool
                    z0, z1 = 0, Y_W  #? one_width
                    for z0 in range(0, Y_W, COLS):  #: one_width
                        z1 = min(z0 + COLS, Y_W)  #? !one_width
                        q0, q1 = z0, z1  #? !pool
                        q0 = max(0, z0 * POOL_STRIDE_W - POOL_LEFT)  #? pool
                        q1 = min(Q, (z1 - 1) * POOL_STRIDE_W - POOL_LEFT + POOL_W)  #? pool
                        pixels, block = x_sb[block % X_BUFFERS], block + 1
                        h0, h1 = p0 * STRIDE_H - PAD_TOP, (p1 - 1) * STRIDE_H - PAD_TOP + (R - 1) * DILATION_H + 1
                        w0, w1 = q0 * STRIDE_W - PAD_LEFT, (q1 - 1) * STRIDE_W - PAD_LEFT + (S - 1) * DILATION_W + 1
                        load(pixels, x, n, images, c0, cn, h0, h1, w0, w1)  #? !padded & !nhwc
                        load(pixels, x, n, images, c0, cn, h0, h1, w0, w1, H, W)  #? padded & !nhwc
                        load(pixels, px, turned, x, n, images, c0, cn, h0, h1, w0, w1, W)  #? !padded & nhwc
                        load(pixels, px, turned, x, n, images, c0, cn, h0, h1, w0, w1, H, W)  #? padded & nhwc
                        for k in range(0, kn, 128):
                            kw = min(128, kn - k)
                            out = y_sb[tile % Y_BUFFERS]  #? !pool
                            out, values = y_sb[tile % Y_BUFFERS], v_sb[tile % Y_BUFFERS]  #? pool
                            rest = r_sb[tile % Y_BUFFERS]  #? residual
                            load(rest, residual, n, images, k0 + k, kw, p0, p1, q0, q1)  #? residual & !padded & !nhwc
                            load(rest, residual, n, images, k0 + k, kw, p0, p1, q0, q1, P, Q)  #? residual & padded & !nhwc
                            load(rest, px, turned, residual, n, images, k0 + k, kw, p0, p1, q0, q1, Q)  #? residual & !padded & nhwc
                            load(rest, px, turned, residual, n, images, k0 + k, kw, p0, p1, q0, q1, P, Q)  #? residual & padded & nhwc
                            top, left = p0 - y0 * POOL_STRIDE_H + POOL_TOP, q0 - z0 * POOL_STRIDE_W + POOL_LEFT  #? pool
                            nisa.memset(dst=values[0:kw, 0:images, :, :], value=POOL_FILL, engine=GPSIMD)  #? pool_padded
                            qn = q1 - q0
                            for p in range(0, p1 - p0, GROUP_ROWS):
                                pn = min(GROUP_ROWS, p1 - p0 - p)
                                psum = banks[bank % BANKS][0:kw, 0 : images * pn * qn].reshape_dim(1, (images, pn, qn))
                                products(psum, weights, pixels, cn, k, kw, images, p, pn, qn)
                                z = z_sb[bank % 2][0:kw, 0 : images * pn * qn].reshape_dim(1, (images, pn, qn))  #? scratch
                                finish(
                                    out[0:kw, 0:images, p : p + pn, 0:qn],  #? !pool
                                    values[0:kw, 0:images, top + p : top + p + pn, left : left + qn],  #? pool
                                    psum,
                                    biases[0:kw, k // 128 : k // 128 + 1],  #? bias
                                    rest[0:kw, 0, 0:images, p : p + pn, 0:qn],  #? residual
                                    z,  #? scratch
                                    bank,  #? both
                                )
                                bank += 1
                            pool(out, values, kw, images, y0, y1, z0, z1)  #? pool & max
                            pool(out, sum_sb[tile % Y_BUFFERS], values, kw, images, y0, y1, z0, z1)  #? average
                            store(y, out, n, images, k0 + k, kw, y0, y1, z0, z1)  #? !nhwc
                            store(y, out, px, turned, n, images, k0 + k, kw, y0, y1, z0, z1)  #? nhwc
                            tile += 1
    return y  #? !nhwc
    return y.reshape((N, Y_H, Y_W, K))  #? nhwc


def products(psum, weights, pixels, cn, k, kw, images, p, pn, qn):
    """A bank's sums: the first product overwrites, the others add. A tap of the filter is a view of the pixels."""
    for ct in range((cn + 127) // 128):
        ctn = min(128, cn - ct * 128)
        for r in range(R):
            for s in range(S):
                h, v = p * STRIDE_H + r * DILATION_H, s * DILATION_W
                rows = pixels[0:ctn, ct, 0:images, h : h + (pn - 1) * STRIDE_H + 1 : STRIDE_H, :]
                tap = rows[:, :, :, v : v + (qn - 1) * STRIDE_W + 1 : STRIDE_W]
                filters = weights[0:ctn, ct, r * S + s, k : k + kw]
                nisa.nc_matmul(dst=psum, stationary=filters, moving=tap, accumulate=ct + r + s > 0)
