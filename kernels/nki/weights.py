def load_weights(dst, raw, turned, w, cn, k0, kn):
    """dst[c, tile, tap, k] <- w[k0 + k, c, tap]: filters come on partitions; the tensor engine turns four taps a bank."""
    w = w.reshape((K, C_OF_GROUP, R * S))  #? !nhwc
    w = w.reshape((K, R * S, C_OF_GROUP))  #? nhwc
    for k in range(0, kn, 128):
        kw = min(128, kn - k)
        for ct in range((cn + 127) // 128):
            ctn = min(128, cn - ct * 128)
            mine = raw[(k // 128 + ct) % 2]
            for g in range(cn // C_OF_GROUP):  # each group's filters, on the diagonal  #? grouped
                kg, cg = g * K_OF_GROUP, g * C_OF_GROUP  #? grouped
                own = mine[kg : kg + K_OF_GROUP, cg : cg + C_OF_GROUP, :]  #? grouped & !nhwc
                own = mine[kg : kg + K_OF_GROUP, :, cg : cg + C_OF_GROUP]  #? grouped & nhwc
                nisa.dma_copy(dst=own, src=w[k0 + kg : k0 + kg + K_OF_GROUP, :, :])  #? grouped
            nisa.dma_copy(dst=mine[0:kw, 0:ctn, :], src=w[k0 + k : k0 + k + kw, ct * 128 : ct * 128 + ctn, :])  #? !grouped & !nhwc
            nisa.dma_copy(dst=mine[0:kw, :, 0:ctn], src=w[k0 + k : k0 + k + kw, :, ct * 128 : ct * 128 + ctn])  #? !grouped & nhwc
            for tap in range(0, R * S, 4):
                tn = min(4, R * S - tap)
                four = turned[tap // 4 % 2].reshape_dim(1, (4, 128))
                for t in range(tn):
                    data = mine[0:kw, 0:ctn, tap + t]  #? !nhwc
                    data = mine[0:kw, tap + t, 0:ctn]  #? nhwc
                    nisa.nc_transpose(dst=four[0:ctn, t, 0:kw], data=data, engine=TENSOR)
                taps = dst[0:ctn, ct, tap : tap + tn, k : k + kw]
                nisa.tensor_copy(dst=taps, src=four[0:ctn, 0:tn, 0:kw], engine=VECTOR)
