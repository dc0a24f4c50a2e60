#include "src/finder/trust/protocol.hpp"

#include <nlohmann/json.hpp>

#include "src/finder/report.hpp"
#include "src/store/json_room.hpp"

namespace faltung::protocol {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kProtocol = 4;

// Messages of drivers may be in any encoding.
std::string dump(const Json& json) { return json.dump(-1, ' ', true, Json::error_handler_t::replace); }

template <class Read>
auto parsed(const std::string& line, const Read& read) {
  ask_room_for_json(line.size());
  try {
    return read(Json::parse(line));
  } catch (const Json::exception& error) {
    throw Error(Status::bad_problem,
                "no line of the worker's protocol: " + line.substr(0, 200) + ": " + error.what());
  }
}

Json to_json(const Task& t) {
  Json json = {{"kernel", t.kernel},
               {"problem", to_string(t.problem)},
               {"device", t.device},
               {"device_key", t.device_key},
               {"store", t.store},
               {"compiler", t.compiler},
               {"units", t.units},
               {"threads", t.threads},
               {"seed", t.seed},
               {"verify", t.verify},
               {"products", t.products},
               {"launches", t.launches},
               {"time_ms", t.time_ms},
               {"best_ms", t.best_ms},
               {"arena_bytes", t.arena_bytes},
               {"arena_ms", t.arena_ms}};
  if (t.next) json["next"] = to_string(*t.next);
  return json;
}

Task to_task(const Json& j) {
  Task t;
  t.kernel = j.at("kernel").get<std::string>();
  t.problem = parse_problem(j.at("problem").get<std::string>());
  t.device = j.value("device", t.device);
  t.device_key = j.value("device_key", t.device_key);
  t.store = j.value("store", t.store);
  t.compiler = j.value("compiler", t.compiler);
  t.units = j.value("units", t.units);
  t.threads = j.value("threads", t.threads);
  t.seed = j.value("seed", t.seed);
  t.verify = j.value("verify", t.verify);
  t.products = j.value("products", t.products);
  t.launches = j.value("launches", t.launches);
  t.time_ms = j.value("time_ms", t.time_ms);
  t.best_ms = j.value("best_ms", t.best_ms);
  t.arena_bytes = j.value("arena_bytes", t.arena_bytes);
  t.arena_ms = j.value("arena_ms", t.arena_ms);
  if (j.contains("next")) t.next = parse_problem(j.at("next").get<std::string>());
  if (t.threads < 1 || t.threads > 4096) {
    throw Error(Status::bad_problem, "threads is " + std::to_string(t.threads) + "; 1 to 4096 are possible");
  }
  return t;
}

}  // namespace

std::string hello() { return dump({{"faltung", version()}, {"protocol", kProtocol}}); }

void check_hello(const std::string& line) {
  if (line == hello()) return;
  throw Error(Status::device_error, "the worker answers '" + line.substr(0, 200) + "', expected " + hello() +
                                        "; FALTUNG_WORKER must be the faltung command of this version");
}

std::string probe(const Probe& probe) {
  return dump({{"do", "probe"}, {"device", probe.device}, {"part", name(probe.part)}});
}

std::string examine(const Task& task) {
  Json json = to_json(task);
  json["do"] = "examine";
  return dump(json);
}

std::string compile(const std::vector<Task>& tasks) {
  Json json = {{"do", "compile"}, {"tasks", Json::array()}};
  for (const Task& task : tasks) json["tasks"].push_back(to_json(task));
  return dump(json);
}

Request read_request(const std::string& line) {
  return parsed(line, [&](const Json& j) {
    Request request;
    const std::string what = j.at("do").get<std::string>();
    if (what == "probe") {
      const std::string part = j.at("part").get<std::string>();
      const bool is_compiler = part == name(Probe::Part::compiler);
      if (!is_compiler && part != name(Probe::Part::memory))
        throw Error(Status::bad_problem, "a probe is of memory or of the compiler, not of '" + part + "'");
      request.probe = {j.at("device").get<std::string>(),
                       is_compiler ? Probe::Part::compiler : Probe::Part::memory};
    } else if (what == "examine") {
      request.task = to_task(j);
    } else if (what == "compile") {
      for (const Json& task : j.at("tasks")) request.compile.push_back(to_task(task));
    } else {
      throw Error(Status::bad_problem, "a worker does 'examine', 'compile' and 'probe', not '" + what + "'");
    }
    return request;
  });
}

std::string phase(Phase p) { return dump({{"phase", name(p)}}); }

std::string answer(const Report& report) { return dump(to_json(report)); }

std::string error(const std::string& what) { return dump({{"error", what}}); }

Reply read_reply(const std::string& line) {
  return parsed(line, [&](const Json& j) {
    Reply reply;
    if (j.contains("error")) reply.error = j.at("error").get<std::string>();
    if (j.contains("phase")) {
      for (const Phase p : {Phase::open, Phase::compile, Phase::run, Phase::check}) {
        if (j.at("phase") == name(p)) reply.phase = p;
      }
    }
    if (j.contains("outcome")) reply.report = report_from(j);
    return reply;
  });
}

}  // namespace faltung::protocol
