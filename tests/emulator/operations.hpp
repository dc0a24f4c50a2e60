// What instructions do, as tables: a name, the types of its operands, and a function of plain C++.
#ifndef FALTUNG_TESTS_EMULATOR_OPERATIONS_HPP_
#define FALTUNG_TESTS_EMULATOR_OPERATIONS_HPP_

#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "tests/emulator/instruction.hpp"

namespace faltung::emulator {

// What becomes of undefined bits: any makes the result undefined; or that bit and those above it, as in sums
// and products; or those bits alone that depend on it.
enum class Taint : u8 { whole, upwards, bits };

// The operands of all lanes of a vector instruction, as bits, and its results.
struct Lanes {
  int count = kMostLanes;
  u64 in[4][kMostLanes];
  u64 out[kMostLanes];
  u64 carry = 0;  // a lane mask
};

struct VectorOperation {
  const char* name;
  Taint taint;
  OperandType result;
  bool carries;
  int sources;
  OperandType source[4];
  void (*run)(Lanes&);
  // The same, where sources and result are one register each, or two words each: of kWords lanes, in place.
  void (*run_words)(u32* const* out, const u32* const* in);
};
inline constexpr int kWords = 32;

template <class T>
struct Result {
  static constexpr OperandType type = Registers<T>::type;
  static constexpr bool carries = false;
  static void put(Lanes& lanes, int lane, T value) { lanes.out[lane] = Registers<T>::bits(value); }
};
template <class T>
struct Result<WithCarry<T>> {
  static constexpr OperandType type = Registers<T>::type;
  static constexpr bool carries = true;
  static void put(Lanes& lanes, int lane, WithCarry<T> result) {
    lanes.out[lane] = Registers<T>::bits(result.value);
    lanes.carry |= u64{result.carry} << lane;
  }
};

template <class F, class R, class... A, std::size_t... I>
void run_lanes(Lanes& lanes, std::index_sequence<I...>) {
  lanes.carry = 0;
  for (int lane = 0; lane < lanes.count; ++lane) {
    Result<R>::put(lanes, lane, F{}(Registers<A>::of(lanes.in[I][lane])...));
  }
}

inline constexpr int words_of(Form form) { return form == Form::pair_of_words ? 2 : 1; }
template <class F, class R, class... A, std::size_t... I>
void run_words(u32* const* out, const u32* const* in, std::index_sequence<I...>) {
  constexpr int words = words_of(Result<R>::type.form);
  const auto taken = [&](std::size_t source, int lane) {
    const u64 first = in[source * words][lane];
    return words == 1 ? first : first | u64{in[source * words + 1][lane]} << 32;
  };
  for (int lane = 0; lane < kWords; ++lane) {
    const u64 result = Registers<R>::bits(F{}(Registers<A>::of(taken(I, lane))...));
    for (int word = 0; word < words; ++word) out[word][lane] = static_cast<u32>(result >> (32 * word));
  }
}
template <class F, class R, class... A>
constexpr auto words_function() -> void (*)(u32* const*, const u32* const*) {
  if constexpr (!Result<R>::carries) {
    constexpr Form form = Result<R>::type.form;
    if constexpr ((form == Form::word || form == Form::pair_of_words) &&
                  ((Registers<A>::type.form == form) && ...))
      return [](u32* const* out, const u32* const* in) {
        run_words<F, R, A...>(out, in, std::index_sequence_for<A...>());
      };
  }
  return nullptr;
}

template <class F, class R, class... A>
constexpr VectorOperation vector_operation(const char* name, Taint taint, R (*)(A...)) {
  return {name,
          taint,
          Result<R>::type,
          Result<R>::carries,
          sizeof...(A),
          {Registers<A>::type...},
          [](Lanes& lanes) { run_lanes<F, R, A...>(lanes, std::index_sequence_for<A...>()); },
          words_function<F, R, A...>()};
}

// A row of a table: the function's parameters and result say how its operands lie in registers.
template <class F>
constexpr VectorOperation op(const char* name, F f) {
  return vector_operation<F>(name, Taint::whole, +f);
}
template <class F>
constexpr VectorOperation sum(const char* name, F f) {
  return vector_operation<F>(name, Taint::upwards, +f);
}
template <class F>
constexpr VectorOperation bits(const char* name, F f) {
  return vector_operation<F>(name, Taint::bits, +f);
}

// A scalar instruction: its sources and result, and the condition code, which it may read and write.
struct ScalarState {
  u64 in[3] = {};
  u64 out = 0;
  bool scc = false;
};
struct ScalarOperation {
  const char* name;
  Taint taint;
  bool writes_scc;
  Form result;  // none, word or wide
  int sources;
  OperandType source[3];
  void (*run)(ScalarState&);
};

enum class Space : u8 { constants, buffer_constants, global, flat, buffer, scratch, local };
enum class Way : u8 { load, store };
enum class Part : u8 { whole, zero_extended, sign_extended, low_half, high_half };
struct MemoryOperation {
  Space space;
  Way way;
  int bytes;  // of each place
  Part part = Part::whole;
  int places = 1;  // two of ds_read2
  int stride = 1;  // bytes that offset0 and offset1 count in
};

// D = A x B + C of one block: who holds what, by AMD's matrix instruction calculator.
enum class MatrixNumber : u8 { f16, bf16, f32 };
struct MatrixOperation {
  const char* name;
  MatrixNumber number;
  int rows, columns, depth;
  int lanes;
  // Element i of a lane's A is A[lane % rows][depth_at(lane, i)], of its B B[depth_at(lane, i)][lane %
  // columns]; element i of its C and D is D[row_at(lane, i)][lane % columns].
  int elements, results;
  int (*depth_at)(int lane, int i);
  int (*row_at)(int lane, int i);
  bool is_gfx12;  // its name means another map there
};

// A vector instruction's operands, settled once.
std::shared_ptr<const VectorBinding> bind_vector(const Instruction& instruction);

// The rows of the table that are of floats.
std::span<const VectorOperation> float_operations();
const VectorOperation* find_vector_operation(const std::string& name);
const ScalarOperation* find_scalar_operation(const std::string& name);
const MemoryOperation* find_memory_operation(const std::string& name);
const MatrixOperation* find_matrix_operation(const std::string& name, bool is_gfx12 = false);
using Control = void (*)(Wave&, const Instruction&);
Control find_control(const std::string& name);

}  // namespace faltung::emulator

#endif  // FALTUNG_TESTS_EMULATOR_OPERATIONS_HPP_
