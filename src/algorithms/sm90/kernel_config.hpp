// What the hosts of Hopper's kernels share that are specialised by a Config.
#ifndef FALTUNG_SRC_ALGORITHMS_SM90_KERNEL_CONFIG_HPP_
#define FALTUNG_SRC_ALGORITHMS_SM90_KERNEL_CONFIG_HPP_

#include <cstdint>
#include <string>

namespace faltung::sm90 {

inline int narrow(std::int64_t value) { return static_cast<int>(value); }  // of what is known to fit

// The statements that fill in a kernel's Config, as one macro.
class ConfigText {
 public:
  void add(const char* field, const std::string& value) {
    text_ += " c." + std::string(field) + " = " + value + ";";
  }
  void add(const char* field, int value) { add(field, std::to_string(value)); }
  std::string text() const { return "#define F_CONFIG" + text_ + "\n"; }

 private:
  std::string text_;
};

}  // namespace faltung::sm90

#endif  // FALTUNG_SRC_ALGORITHMS_SM90_KERNEL_CONFIG_HPP_
