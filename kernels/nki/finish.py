def finish(
    dst,
    psum,
    bias,  #? bias
    rest,  #? residual
    z,  #? scratch
    turn,  #? both
):
    """Of a bank's sums: bias, residual, activation; frees the bank."""
    nisa.scalar_tensor_tensor(dst=z, data=psum, op0=nl.add, operand0=bias, op1=nl.add, operand1=rest)  #? residual & bias & scratch
    nisa.tensor_tensor(dst=z, data1=psum, data2=rest, op=nl.add, engine=VECTOR)  #? residual & !bias & scratch
    nisa.scalar_tensor_tensor(dst=dst, data=psum, op0=nl.add, operand0=bias, op1=nl.add, operand1=rest)  #? residual & bias & !scratch
    nisa.tensor_tensor(dst=dst, data1=psum, data2=rest, op=nl.add, engine=VECTOR)  #? residual & !bias & !scratch
    nisa.activation(dst=z, op=nl.copy, data=psum, bias=bias)  #? !residual & scratch & bias
    nisa.activation(dst=z, op=nl.copy, data=psum)  #? !residual & scratch & !bias
    nisa.activation(dst=dst, op=ACTIVATION, data=z)  #? residual & scalar & scratch
    if turn % 2 == 0:  #? both
        nisa.activation(dst=dst, op=ACTIVATION, data=psum, bias=bias)  #? both & bias
        nisa.activation(dst=dst, op=ACTIVATION, data=psum)  #? both & !bias
    else:  # every other bank, for the scalar engine alone would not keep up  #? both
        nisa.tensor_scalar(dst=dst, data=psum, op0=nl.add, operand0=bias, op1=nl.maximum, operand1=0.0, engine=VECTOR)  #? both & relu & bias
        nisa.tensor_scalar(dst=dst, data=psum, op0=nl.maximum, operand0=0.0, engine=VECTOR)  #? both & relu & !bias
        nisa.tensor_scalar(dst=dst, data=psum, op0=nl.add, operand0=bias, engine=VECTOR)  #? both & !relu & bias
        nisa.tensor_copy(dst=dst, src=psum, engine=VECTOR)  #? both & !relu & !bias
    nisa.activation(dst=dst, op=ACTIVATION, data=psum, bias=bias)  #? !both & !residual & !scratch & bias
    nisa.activation(dst=dst, op=ACTIVATION, data=psum)  #? !both & !residual & !scratch & !bias
    nisa.tensor_scalar(dst=dst, data=z, op0=nl.maximum, operand0=0.0, op1=nl.minimum, operand1=6.0, engine=VECTOR)  #? relu6
    nisa.scalar_tensor_tensor(dst=dst, data=z, op0=nl.multiply, operand0=SLOPE, op1=nl.maximum, operand1=z)  #? leaky & flat
    nisa.scalar_tensor_tensor(dst=dst, data=z, op0=nl.multiply, operand0=SLOPE, op1=nl.minimum, operand1=z)  #? leaky & !flat
    part = psum  # its sums are in z: as scratch memory  #? hardswish
    nisa.tensor_scalar(dst=part, data=z, op0=nl.add, operand0=3.0, op1=nl.maximum, operand1=0.0, engine=VECTOR)  #? hardswish
    nisa.tensor_scalar(dst=part, data=part, op0=nl.minimum, operand0=6.0, op1=nl.multiply, operand1=1.0 / 6.0, engine=VECTOR)  #? hardswish
    nisa.tensor_tensor(dst=dst, data1=z, data2=part, op=nl.multiply, engine=VECTOR)  #? hardswish
