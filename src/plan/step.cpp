#include "src/plan/step.hpp"

namespace faltung {
namespace {

// change(slot) for every slot that the step names.
template <class Change>
void for_slots(Step& step, const Change& change) {
  if (auto* c = std::get_if<Call>(&step.work)) {
    for (Slot& slot : c->places) change(slot);
    return;
  }
  for (StepArgument& argument : std::get<Launch>(step.work).arguments) {
    for (StepArgument::Member& member : argument.addresses) change(member.address.slot);
    for (StepArgument::Map& map : argument.maps) change(map.address.slot);
    for (StepArgument::Rest& rest : argument.rests) change(rest.of);
  }
}

}  // namespace

std::vector<Address> Step::uses() const {
  std::vector<Address> all;
  if (const auto* c = std::get_if<Call>(&work)) {
    const auto slot = [&](Place place) { return c->places[static_cast<std::size_t>(place)]; };
    for (const Place place : c->reads) all.push_back({slot(place), Access::read});
    for (const Place place : c->writes) all.push_back({slot(place), Access::write});
    return all;
  }
  for (const StepArgument& argument : std::get<Launch>(work).arguments) {
    for (const StepArgument::Member& member : argument.addresses) all.push_back(member.address);
    for (const StepArgument::Map& map : argument.maps) all.push_back(map.address);
  }
  return all;
}

void Step::rewire(Place place, Slot to) {
  for_slots(*this, [&](Slot& slot) {
    if (slot.place == place) slot = {to.place, to.offset + slot.offset};
  });
}

void Step::exchange(Place a, Place b) {
  for_slots(*this, [&](Slot& slot) {
    if (slot.place == a || slot.place == b) slot.place = slot.place == a ? b : a;
  });
}

}  // namespace faltung
