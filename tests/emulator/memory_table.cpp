// Which loads and stores there are.
#include <map>

#include "tests/emulator/operations.hpp"

namespace faltung::emulator {
namespace {

// A size as chips until gfx10 and from gfx11 on spell it.
struct Size {
  const char *early, *later;
  int bytes;
  Part part;
};
constexpr Size kLoads[] = {
    {"dword", "b32", 4, Part::whole},
    {"dwordx2", "b64", 8, Part::whole},
    {"dwordx3", "b96", 12, Part::whole},
    {"dwordx4", "b128", 16, Part::whole},
    {"ubyte", "u8", 1, Part::zero_extended},
    {"sbyte", "i8", 1, Part::sign_extended},
    {"ushort", "u16", 2, Part::zero_extended},
    {"sshort", "i16", 2, Part::sign_extended},
    {"short_d16", "d16_b16", 2, Part::low_half},
    {"short_d16_hi", "d16_hi_b16", 2, Part::high_half},
};
constexpr Size kStores[] = {
    {"dword", "b32", 4, Part::whole},
    {"dwordx2", "b64", 8, Part::whole},
    {"dwordx3", "b96", 12, Part::whole},
    {"dwordx4", "b128", 16, Part::whole},
    {"byte", "b8", 1, Part::low_half},
    {"short", "b16", 2, Part::low_half},
    {"short_d16_hi", "d16_hi_b16", 2, Part::high_half},
};
// Of local memory the sizes have one spelling, but for halves.
constexpr Size kLocalLoads[] = {
    {"b32", "b32", 4, Part::whole},
    {"b64", "b64", 8, Part::whole},
    {"b96", "b96", 12, Part::whole},
    {"b128", "b128", 16, Part::whole},
    {"u8", "u8", 1, Part::zero_extended},
    {"i8", "i8", 1, Part::sign_extended},
    {"u16", "u16", 2, Part::zero_extended},
    {"i16", "i16", 2, Part::sign_extended},
    {"u16_d16", "u16_d16", 2, Part::low_half},
    {"u16_d16_hi", "u16_d16_hi", 2, Part::high_half},
};
constexpr Size kLocalStores[] = {
    {"b32", "b32", 4, Part::whole},
    {"b64", "b64", 8, Part::whole},
    {"b96", "b96", 12, Part::whole},
    {"b128", "b128", 16, Part::whole},
    {"b8", "b8", 1, Part::low_half},
    {"b16", "b16", 2, Part::low_half},
    {"b16_d16_hi", "b16_d16_hi", 2, Part::high_half},
};
struct ConstantSize {
  const char* name;
  int bytes;
  Part part;
};
constexpr ConstantSize kConstants[] = {
    {"dword", 4, Part::whole},       {"dwordx2", 8, Part::whole},    {"dwordx3", 12, Part::whole},
    {"dwordx4", 16, Part::whole},    {"dwordx8", 32, Part::whole},   {"dwordx16", 64, Part::whole},
    {"b32", 4, Part::whole},         {"b64", 8, Part::whole},        {"b96", 12, Part::whole},
    {"b128", 16, Part::whole},       {"b256", 32, Part::whole},      {"b512", 64, Part::whole},
    {"u8", 1, Part::zero_extended},  {"i8", 1, Part::sign_extended}, {"u16", 2, Part::zero_extended},
    {"i16", 2, Part::sign_extended},
};

std::map<std::string, MemoryOperation> make_table() {
  std::map<std::string, MemoryOperation> all;
  struct Prefix {
    const char* name;
    Space space;
  };
  for (const Prefix& p : {Prefix{"global_", Space::global}, Prefix{"flat_", Space::flat},
                          Prefix{"buffer_", Space::buffer}, Prefix{"scratch_", Space::scratch}}) {
    for (const Size& s : kLoads) {
      for (const char* name : {s.early, s.later})
        all[std::string(p.name) + "load_" + name] = {p.space, Way::load, s.bytes, s.part};
    }
    for (const Size& s : kStores) {
      for (const char* name : {s.early, s.later})
        all[std::string(p.name) + "store_" + name] = {p.space, Way::store, s.bytes, s.part};
    }
  }
  for (const Size& s : kLocalLoads) {
    for (const char* verb : {"ds_read_", "ds_load_"})
      all[verb + std::string(s.early)] = {Space::local, Way::load, s.bytes, s.part};
  }
  for (const Size& s : kLocalStores) {
    for (const char* verb : {"ds_write_", "ds_store_"})
      all[verb + std::string(s.early)] = {Space::local, Way::store, s.bytes, s.part};
  }
  for (const int bytes : {4, 8}) {
    const std::string size = bytes == 4 ? "b32" : "b64";
    const MemoryOperation load{Space::local, Way::load, bytes, Part::whole, 2, bytes};
    MemoryOperation far = load;
    far.stride = 64 * bytes;
    for (const auto& [name, operation] :
         std::map<std::string, MemoryOperation>{{"ds_read2_" + size, load},
                                                {"ds_load_2addr_" + size, load},
                                                {"ds_read2st64_" + size, far},
                                                {"ds_load_2addr_stride64_" + size, far}}) {
      all[name] = operation;
    }
    MemoryOperation store = load, far_store = far;
    store.way = far_store.way = Way::store;
    for (const auto& [name, operation] :
         std::map<std::string, MemoryOperation>{{"ds_write2_" + size, store},
                                                {"ds_store_2addr_" + size, store},
                                                {"ds_write2st64_" + size, far_store},
                                                {"ds_store_2addr_stride64_" + size, far_store}}) {
      all[name] = operation;
    }
  }
  for (const ConstantSize& s : kConstants) {
    all[std::string("s_load_") + s.name] = {Space::constants, Way::load, s.bytes, s.part};
    all[std::string("s_buffer_load_") + s.name] = {Space::buffer_constants, Way::load, s.bytes, s.part};
  }
  return all;
}

}  // namespace

const MemoryOperation* find_memory_operation(const std::string& name) {
  static const std::map<std::string, MemoryOperation> all = make_table();
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

}  // namespace faltung::emulator
