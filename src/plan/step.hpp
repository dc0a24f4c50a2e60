// A step of a recipe, as data: what it launches or calls, on which memory.
#ifndef FALTUNG_SRC_PLAN_STEP_HPP_
#define FALTUNG_SRC_PLAN_STEP_HPP_

#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/jit/session.hpp"

namespace faltung {

// What memory a run has. packed: written by pack steps, only read by the others.
enum class Place : std::uint8_t {
  x,
  w,
  y,
  bias,
  residual,
  relu,
  sums,
  scale,
  shift,
  slopes,
  workspace,
  packed
};
inline constexpr std::size_t kPlaces = 12;
// What the problem's direction writes.
inline Place result_place(const Problem& problem) {
  return problem.direction == Direction::forward         ? Place::y
         : problem.direction == Direction::backward_data ? Place::x
                                                         : Place::w;
}

// A place in memory, so many bytes from where it begins.
struct Slot {
  Place place;
  std::size_t offset = 0;
  constexpr Slot(Place place, std::size_t offset = 0) : place(place), offset(offset) {}  // implicit
  bool operator==(const Slot&) const = default;
};

// Where the places of one run begin; null where there is none.
struct Memory {
  std::array<std::byte*, kPlaces> begin{};
  bool weights_rest = false;  // w and packed: as RunOptions has it
  std::byte*& operator[](Place place) { return begin[static_cast<std::size_t>(place)]; }
  std::byte* operator[](Place place) const { return begin[static_cast<std::size_t>(place)]; }
  std::byte* at(const Slot& slot) const {
    std::byte* const start = (*this)[slot.place];
    return start == nullptr ? nullptr : start + slot.offset;
  }
};

enum class Access : std::uint8_t { read, write, update };

// A place in memory and what is done there. One that a run has not is passed as null.
struct Address {
  Slot slot;
  Access access;
};

// A kernel's argument: an address alone, or a value, whose members may be addresses and tensors as a copy
// engine sees them.
struct StepArgument {
  enum class Kind { address, value };
  // An address, and where in the bytes it belongs; for a map, what stands there is made of it.
  struct Member {
    std::size_t at;
    Address address;
  };
  struct Map {
    std::size_t at;
    MapShape shape;
    Address address;
  };
  // Where an int says whether what the kernel reads there is at rest: weights that a caller has said it of.
  struct Rest {
    std::size_t at;
    Slot of;
  };
  Kind kind;
  std::vector<std::byte> bytes;
  std::vector<Member> addresses;
  std::vector<Map> maps;
  std::vector<Rest> rests = {};
};
inline StepArgument address(Slot slot, Access access) {
  return {StepArgument::Kind::address, std::vector<std::byte>(sizeof(void*)), {{0, {slot, access}}}, {}};
}
inline StepArgument in(Slot slot) { return address(slot, Access::read); }
inline StepArgument out(Slot slot) { return address(slot, Access::write); }
inline StepArgument in_out(Slot slot) { return address(slot, Access::update); }
template <class T>
StepArgument value(const T& v, std::vector<StepArgument::Member> addresses = {}) {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
  StepArgument argument{
      StepArgument::Kind::value, std::vector<std::byte>(sizeof(T)), std::move(addresses), {}};
  std::memcpy(argument.bytes.data(), &v, sizeof(T));
  return argument;
}
// A tensor, or several that are the members of one struct.
struct Mapped {
  MapShape shape;
  Address address;
};
inline StepArgument mapped(const std::vector<Mapped>& tensors) {
  StepArgument argument{
      StepArgument::Kind::value, std::vector<std::byte>(tensors.size() * sizeof(TensorMap)), {}, {}};
  for (const Mapped& tensor : tensors) {
    argument.maps.push_back({argument.maps.size() * sizeof(TensorMap), tensor.shape, tensor.address});
  }
  return argument;
}

// A GPU's: one launch of a kernel.
struct Launch {
  jit::Source source;
  LaunchShape shape;
  std::vector<StepArgument> arguments;
};

// The CPU's: a function over the places that it declares; the others are null for it. Must be callable from
// many threads at once, and must not allocate.
struct Call {
  std::vector<Place> reads, writes;
  std::function<void(const Memory&, const Parallel&)> run;
  // Where each lies.
  std::array<Slot, kPlaces> places = {Place::x,        Place::w,      Place::y,         Place::bias,
                                      Place::residual, Place::relu,   Place::sums,      Place::scale,
                                      Place::shift,    Place::slopes, Place::workspace, Place::packed};
};

struct Step {
  std::string name;
  std::variant<Call, Launch> work;

  // Every slot that it reads or writes, each once for each way.
  std::vector<Address> uses() const;
  // From now on what was `place` is `slot`, offsets counted from there.
  void rewire(Place place, Slot slot);
  // From now on each of the two is the other.
  void exchange(Place a, Place b);
};

// A CPU's step, a GPU's step.
inline Step call(std::string name, std::vector<Place> reads, std::vector<Place> writes,
                 std::function<void(const Memory&, const Parallel&)> run) {
  Call work;
  work.reads = std::move(reads);
  work.writes = std::move(writes);
  work.run = std::move(run);
  return {std::move(name), std::move(work)};
}
inline Step launch(std::string name, jit::Source source, const LaunchShape& shape,
                   std::vector<StepArgument> arguments) {
  return {std::move(name), Launch{std::move(source), shape, std::move(arguments)}};
}

}  // namespace faltung

#endif  // FALTUNG_SRC_PLAN_STEP_HPP_
