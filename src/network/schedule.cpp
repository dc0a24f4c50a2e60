#include "src/network/schedule.hpp"

#include <algorithm>
#include <functional>

#include "src/plan/recipe.hpp"

namespace faltung::network {
namespace {

// Which buffers are one: a result that takes the place of what it is made of.
class Shared {
 public:
  explicit Shared(std::size_t count) : of_(count) {
    for (std::size_t i = 0; i < count; ++i) of_[i] = static_cast<int>(i);
  }
  int find(int buffer) const {
    while (of_[static_cast<std::size_t>(buffer)] != buffer) buffer = of_[static_cast<std::size_t>(buffer)];
    return buffer;
  }
  void join(int buffer, int into) { of_[static_cast<std::size_t>(find(buffer))] = find(into); }

 private:
  std::vector<int> of_;
};

bool in_arena(const Lowering& lowering, const Ref& ref) {
  return lowering.buffers[static_cast<std::size_t>(ref.buffer)].in == Place::In::arena;
}

// The first and last step that uses each buffer.
struct Life {
  int first = -1, last = -1;
  void use(int step) {
    if (first < 0) first = step;
    last = std::max(last, step);
  }
};
std::vector<Life> lives_of(const Lowering& lowering) {
  std::vector<Life> lives(lowering.buffers.size());
  for (std::size_t s = 0; s < lowering.drafts.size(); ++s) {
    const Draft& draft = lowering.drafts[s];
    for (const Ref& ref : draft.reads) lives[static_cast<std::size_t>(ref.buffer)].use(static_cast<int>(s));
    lives[static_cast<std::size_t>(draft.write.buffer)].use(static_cast<int>(s));
    if (draft.averages) lives[static_cast<std::size_t>(draft.averages->buffer)].use(static_cast<int>(s));
  }
  return lives;
}

// A step whose input is read for the last time writes where that lies, if it may. wants: whether this step,
// whose result takes so many bytes, is to.
Shared share_in_place(const Lowering& lowering, const std::function<bool(std::size_t, std::size_t)>& wants) {
  Shared shared(lowering.buffers.size());
  std::vector<Life> lives = lives_of(lowering);
  for (std::size_t s = 0; s < lowering.drafts.size(); ++s) {
    const Draft& draft = lowering.drafts[s];
    const auto& out = lowering.buffers[static_cast<std::size_t>(draft.write.buffer)];
    Life& own = lives[static_cast<std::size_t>(draft.write.buffer)];
    if (!in_arena(lowering, draft.write) || own.first != static_cast<int>(s) || draft.write.offset != 0)
      continue;
    if (draft.in_place.empty() || !wants(s, out.bytes)) continue;
    // What it reads of the same memory at other places than it writes would be overwritten before it is read.
    const auto reads_elsewhere = [&](int root) {
      for (std::size_t j = 0; j < draft.reads.size(); ++j) {
        const bool same_place =
            std::ranges::find(draft.in_place, static_cast<int>(j)) != draft.in_place.end();
        if (!same_place && shared.find(draft.reads[j].buffer) == root) return true;
      }
      return false;
    };
    for (const int i : draft.in_place) {
      const Ref& ref = draft.reads[static_cast<std::size_t>(i)];
      const int root = shared.find(ref.buffer);
      const bool fits = in_arena(lowering, ref) && ref.offset == 0 && !reads_elsewhere(root) &&
                        lowering.buffers[static_cast<std::size_t>(root)].bytes == out.bytes &&
                        lives[static_cast<std::size_t>(root)].last == static_cast<int>(s);
      if (!fits) continue;
      shared.join(draft.write.buffer, root);
      lives[static_cast<std::size_t>(root)].last = own.last;
      break;
    }
  }
  return shared;
}

// Where everything lies.
struct Placement {
  Shared shared;
  std::vector<int> box_of;              // by buffer that others are not one with
  std::vector<std::size_t> workspaces;  // by step: its box, if it wants one
  std::vector<Box> boxes;
  MemoryPlan memory;
};

Placement placed(const Lowering& lowering, Shared shared) {
  Placement p{std::move(shared), std::vector<int>(lowering.buffers.size(), -1), {}, {}, {}};
  const auto use = [&](const Ref& ref, int step) {
    if (!in_arena(lowering, ref)) return;
    const auto root = static_cast<std::size_t>(p.shared.find(ref.buffer));
    if (p.box_of[root] < 0) {
      p.box_of[root] = static_cast<int>(p.boxes.size());
      p.boxes.push_back({lowering.buffers[root].bytes, step, step});
    }
    p.boxes[static_cast<std::size_t>(p.box_of[root])].last = step;
  };
  for (std::size_t s = 0; s < lowering.drafts.size(); ++s) {
    const Draft& draft = lowering.drafts[s];
    for (const Ref& ref : draft.reads) use(ref, static_cast<int>(s));
    use(draft.write, static_cast<int>(s));
    if (draft.averages) use(*draft.averages, static_cast<int>(s));
    p.workspaces.push_back(p.boxes.size());
    if (draft.workspace_bytes > 0)
      p.boxes.push_back({draft.workspace_bytes, static_cast<int>(s), static_cast<int>(s)});
  }
  p.memory = plan_memory(p.boxes);
  return p;
}

// On a GPU writing in place takes longer than beside (docs/notes/networks.md): it is for steps at which the
// arena would have to be larger.
Placement placed(const Lowering& lowering) {
  Placement least = placed(lowering, share_in_place(lowering, [](std::size_t, std::size_t) { return true; }));
  if (!lowering.on_gpu()) return least;
  const std::vector<std::size_t> lives = lives_at(least.boxes);
  Placement beside = placed(lowering, share_in_place(lowering, [&](std::size_t step, std::size_t bytes) {
                              return lives[step] + aligned(bytes) > least.memory.bytes;
                            }));
  return beside.memory.bytes <= least.memory.bytes ? beside : least;
}

}  // namespace

Schedule::Schedule(Graph graph, const Lowering::Settings& settings)
    : graph_(std::move(graph)), parallel_(settings.engine.workers(std::max(1, settings.request.threads))) {
  Lowering lowering(graph_, settings);
  {
    const struct GiveBack {
      Weights& weights;
      ~GiveBack() { weights.give_back_scratch(); }
    } give_back{settings.weights};
    lowering.run();
  }
  turned_ = lowering.turned;
  place(lowering);
}

void Schedule::place(Lowering& lowering) {
  const Placement placement = placed(lowering);
  memory_ = placement.memory;
  const auto place_of = [&](const Ref& ref) {
    const Buffer& buffer = lowering.buffers[static_cast<std::size_t>(ref.buffer)];
    if (buffer.in != Place::In::arena) return Place{buffer.in, buffer.index, ref.offset};
    const int box = placement.box_of[static_cast<std::size_t>(placement.shared.find(ref.buffer))];
    return Place{Place::In::arena, 0, memory_.offsets[static_cast<std::size_t>(box)] + ref.offset};
  };
  for (std::size_t s = 0; s < lowering.drafts.size(); ++s) {
    Draft& draft = lowering.drafts[s];
    NetworkStep step;
    step.name = std::move(draft.name);
    step.note = std::move(draft.note);
    step.work = std::move(draft.work);
    for (const Ref& ref : draft.reads) step.reads.push_back(place_of(ref));
    step.write = place_of(draft.write);
    if (draft.averages) step.averages = place_of(*draft.averages);
    step.workspace_bytes = draft.workspace_bytes;
    if (draft.workspace_bytes > 0)
      step.workspace = {Place::In::arena, 0, memory_.offsets[placement.workspaces[s]]};
    step.predicted_ms = lowering.predicted_ms(step.work);
    if (step.reads.size() > kMapRegisters) throw Error(Status::internal, step.name + ": it reads too much");
    steps_.push_back(std::move(step));
    products_.push_back(
        {draft.value, draft.layout, draft.value_at.offset - draft.write.offset, draft.value_at.pitch});
  }
  constants_.resize(lowering.constants.size());
  for (const Buffer& buffer : lowering.buffers) {
    if (buffer.in == Place::In::constant)
      constants_[buffer.index] = {lowering.constants[buffer.index], buffer.bytes};
  }
}

std::byte* Schedule::result(std::size_t step, std::span<void* const> outputs, std::byte* arena) const {
  const Place& to = steps_[step].write;
  std::byte* const begin = to.in == Place::In::arena ? arena : static_cast<std::byte*>(outputs[to.index]);
  return begin + to.offset;
}

void Schedule::run(std::span<const void* const> inputs, std::span<void* const> outputs, std::byte* arena,
                   FunctionRef<void(std::size_t)> before) const {
  const auto address = [&](const Place& place) -> const std::byte* {
    switch (place.in) {
      case Place::In::arena:
        return arena + place.offset;
      case Place::In::constant:
        return constants_[place.index].data.get() + place.offset;
      case Place::In::input:
        return static_cast<const std::byte*>(inputs[place.index]) + place.offset;
      case Place::In::output:
        return static_cast<const std::byte*>(outputs[place.index]) + place.offset;
    }
    return nullptr;
  };
  const std::byte* reads[kMapRegisters];
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    before(s);
    const NetworkStep& step = steps_[s];
    for (std::size_t i = 0; i < step.reads.size(); ++i) reads[i] = address(step.reads[i]);
    run_work(step.work, reads, result(s, outputs, arena),
             step.averages ? arena + step.averages->offset : nullptr, arena + step.workspace.offset,
             *parallel_);
  }
  before(steps_.size());
}

}  // namespace faltung::network
