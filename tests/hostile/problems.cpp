#include "tests/hostile/hostile.hpp"

namespace faltung::hostile {
namespace {

// One number for all dimensions, or of two dimensions each its own.
std::string numbers(Dice& dice, int dimensions, int first, int last) {
  const std::string a = std::to_string(dice.between(first, last));
  return dimensions != 2 || dice.chance(60) ? a : a + "x" + std::to_string(dice.between(first, last));
}

}  // namespace

std::string roll_problem(Dice& dice) {
  const std::string direction = dice.one_of<const char*>({"fwd", "fwd", "bwd_d", "bwd_w"});
  const auto size = [&] {
    return dice.one_of({1, 2, 3, 4, 5, 7, 8, 13, 15, 16, 17, 24, 31, 32, 33, 48, 64});
  };
  const int groups = dice.chance(60) ? 1 : dice.one_of({2, 3, 4, 8, 16, 32});
  const bool depthwise = groups > 1 && dice.chance(60);
  const int c = depthwise ? groups : groups * dice.between(1, 33), k = groups * (depthwise ? 1 : size());
  const int r = dice.one_of({1, 1, 3, 3, 3, 5, 7, 2, 11}), s = dice.chance(80) ? r : dice.between(1, 7);
  const int dimensions = dice.chance(75) ? 2 : dice.one_of({1, 3});
  const int image = dice.chance(85) ? 20 : 60;
  const auto sized = [](const char* name, int size) { return name + std::to_string(size); };
  std::string text = direction + sized(":n", dice.between(1, 3)) + sized("c", c);
  if (dimensions == 3) text += sized("d", dice.between(1, 7));
  if (dimensions >= 2) text += sized("h", dice.between(1, image));
  text += sized("w", dice.between(1, image)) + sized("k", k);
  if (dimensions == 3) text += sized("t", dice.between(1, 3));
  if (dimensions >= 2) text += sized("r", r);
  text += sized("s", s);
  if (dice.chance(10)) text += dice.chance(30) ? ":transposed:outpad1" : ":transposed";
  if (dice.chance(30)) text += ":st" + numbers(dice, dimensions, 1, 3);
  if (dice.chance(70)) {
    text += ":pad" + (dice.chance(70) ? std::to_string((dimensions == 1 ? s : r) / 2)
                                      : numbers(dice, dimensions, 0, r));
  }
  if (dice.chance(15)) text += ":dil" + numbers(dice, dimensions, 1, 3);
  if (groups > 1) text += ":g" + std::to_string(groups);
  text += dice.one_of<const char*>({":f32", ":f32", ":f16", ":bf16"});
  text += dice.one_of<const char*>({":nchw", ":nhwc"});
  if (dice.chance(25)) text += ":math=fast";
  if (direction != "fwd") return text;
  if (dice.chance(50)) text += ":bias";
  if (dice.chance(25)) text += ":residual";
  if (dice.chance(50)) {
    text +=
        dice.one_of<const char*>({":relu", ":relu6", ":leaky_relu(0.1)", ":sigmoid", ":silu", ":gelu",
                                  ":gelu_tanh", ":hardswish", ":hardsigmoid(0.2)", ":clip(-1,2)", ":prelu"});
  }
  if (dice.chance(25))
    text += dice.one_of<const char*>({":maxpool2", ":avgpool2", ":maxpool3s2p1", ":avgpool3s1"});
  return text;
}

ProblemHandle roll_valid_problem(Dice& dice) {
  while (true) {
    ProblemHandle problem = problem_of(roll_problem(dice));
    if (problem) return problem;
  }
}

}  // namespace faltung::hostile
