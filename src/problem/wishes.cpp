#include "src/problem/wishes.hpp"

#include "src/problem/words.hpp"

namespace faltung {
namespace {

struct Wish {
  const char* patterns;  // of lower-case words, separated by spaces
  const char* sentence;
};

// The first that matches counts.
const Wish kWishes[] = {
    {"fp32 float32 float single", "it is called f32"},
    {"fp16 float16 half", "it is called f16"},
    {"bfloat16 bfloat", "it is called bf16"},
    {"f64 fp64 float64 double",
     "there is no 64-bit arithmetic; the types are f32, f16 and bf16, and all of them are summed in fp32 at "
     "least"},
    {"int* uint* i4 i8 i16 i32 s8 u8 s32 quint8 qint8 fp8* f8* float8* e4m3* e5m2* fp4* f4*",
     "there is no arithmetic on integers or on 8 bits; the types are f32, f16 and bf16"},
    {"reflect* replicate* circular* symmetric* edge wrap pad_mode*",
     "there is no padding but with zeros; pad the input yourself, and write the larger h and w without pad"},
    {"same* valid", "padding is written in numbers: pad1, pad1x2 or pad0.1.0.1 (top, bottom, left, right)"},
    {"conv_transpose* convtranspose* deconv*",
     "a transposed convolution is written with the field transposed: n1c8h5w6k4r3s3:transposed:st2"},
    {"conv1d 1d", "in one dimension h and r are left out: n1c8w100k8s3"},
    {"conv3d 3d", "in three dimensions the sizes have d and t, too: n1c8d6h9w8k8t3r3s3"},
    {"conv conv2d convolution", "the direction is fwd, bwd_d or bwd_w, and every problem is a convolution"},
    {"wgrad bwd_f bwd_filter backward_weights backward_filter backward_weight dw",
     "the gradient with regard to the weights is called bwd_w"},
    {"dgrad bwd_i backward_data backward_input backward dx",
     "the gradient with regard to the input is called bwd_d"},
    {"fprop forward", "it is called fwd"},
    {"stride* strides*", "a stride is written st2, or st2x1 (vertical x horizontal)"},
    {"opad* output_pad* outputpad* out_pad*",
     "the output padding of a transposed convolution is written outpad1, or outpad1x0 (vertical x "
     "horizontal)"},
    {"padding* pad=* pads* p0 p1 p2 p3",
     "padding is written pad1, pad1x2 or pad0.1.0.1 (top, bottom, left, right)"},
    {"dilation* dilations* dilate*", "a dilation is written dil2, or dil2x1 (vertical x horizontal)"},
    {"batchnorm* batch_norm* bn", "a batch norm is folded into the weights and the bias: write bias"},
    {"layernorm* layer_norm* groupnorm* group_norm* instancenorm* instance_norm* softmax*",
     "it is an operator of networks, and none of a convolution's epilogue: faltung network explain "
     "MODEL.onnx"},
    {"group* groups*", "groups are written g32"},
    {"depthwise*", "a depthwise convolution has as many groups as channels: c32 and g32"},
    {"batch* mb*", "the batch is n: n32c64h56w56k64r3s3"},
    {"kernel* filter* ksize*", "the filter's height and width are r and s: r3s3"},
    {"channels_last nhwc_*", "it is called nhwc"},
    {"channels_first", "it is called nchw"},
    {"nchw*c nc*hw*c blocked", "there is no blocked layout; the layouts are nchw and nhwc"},
    {"swish* silu_*", "it is called silu"},
    {"leakyrelu leaky_relu leaky lrelu", "a slope below zero is written leaky_relu(0.01)"},
    {"p_relu prelu*", "one slope below zero for each output channel is written prelu; they are a tensor"},
    {"clip* clamp* clipped* hardtanh hard_tanh", "bounds are written clip(-1,6)"},
    {"hard_swish h_swish", "it is called hardswish"},
    {"hard_sigmoid* hardsigmoid h_sigmoid", "it is written with its slope: hardsigmoid(0.2)"},
    {"gelu_new gelu_approx* gelu_fast", "it is called gelu_tanh"},
    {"tanh* elu celu selu mish softplus softsign glu swiglu",
     "there is no such activation; there are relu, relu6, leaky_relu(0.01), sigmoid, silu, gelu, gelu_tanh, "
     "hardswish, hardsigmoid(0.2), clip(-1,6) and prelu"},
    {"add sum skip shortcut", "a tensor that is added to the result is called residual"},
    {"max_pool* max_pooling*", "a pool is written maxpool2 or maxpool3s2p1 (size, stride, padding)"},
    {"avg_pool* average_pool* averagepool*",
     "a pool is written avgpool2 or avgpool3s2p1 (size, stride, padding)"},
    {"*.onnx *.pt *.pth *.safetensors *.tflite *.pb",
     "it is a file, and a problem is one convolution, as n1c64h56w56k64r3s3"},
    {"*.csv", "it is a file; a list of problems is read by --suite FILE.csv"},
};

}  // namespace

std::string advice(std::string_view word, const std::vector<std::string>& known) {
  const std::string text = lower(word.substr(0, 64));
  for (const Wish& wish : kWishes) {
    for (const std::string& pattern : split(wish.patterns, ' ')) {
      if (matches(pattern, text)) return wish.sentence;
    }
  }
  return suggestion(text, known);
}

}  // namespace faltung
