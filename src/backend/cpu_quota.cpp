#include "src/backend/cpu_quota.hpp"

#include <algorithm>
#include <climits>
#include <cmath>
#include <fstream>

namespace faltung {
namespace {

// Quota and period are in microseconds; a quota that is no positive number ("max", -1) is none.
int processors(double quota, double period) {
  if (!(quota > 0) || !(period > 0) || quota / period >= INT_MAX) return INT_MAX;
  return std::max(1, static_cast<int>(std::ceil(quota / period)));
}

// 0 if there is no such number.
double number_in(const std::string& file) {
  std::ifstream in(file);
  double number = 0;
  return in >> number ? number : 0;
}

int version_1(const std::string& directory) {
  return processors(number_in(directory + "/cpu.cfs_quota_us"), number_in(directory + "/cpu.cfs_period_us"));
}

int version_2(const std::string& directory) {
  std::ifstream in(directory + "/cpu.max");
  double quota = 0, period = 0;
  return in >> quota >> period ? processors(quota, period) : INT_MAX;
}

// The least of a group and those around it. In a container the path may be the host's, of which nothing is
// mounted: then the mount itself is the container's group.
int least(const std::string& mount, std::string group, int (*of)(const std::string& directory)) {
  int quota = of(mount);
  while (!group.empty() && group != "/") {
    quota = std::min(quota, of(mount + group));
    group.resize(group.find_last_of('/') == std::string::npos ? 0 : group.find_last_of('/'));
  }
  return quota;
}

}  // namespace

int cpu_quota(const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  int quota = INT_MAX;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // number:controllers:group
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      for (const char* place : {"", "/unified"})
        quota = std::min(quota, least(mount + place, group, version_2));
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      for (const std::string& place : {controllers, std::string("cpu")})
        quota = std::min(quota, least(mount + "/" + place, group, version_1));
    }
  }
  return quota;
}

}  // namespace faltung
