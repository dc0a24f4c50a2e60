// The convolution as products on the tensor engine of AWS's Trainium: a tap of the filter is a view of the
// pixels in SBUF, and PSUM adds the taps up. Its step is an NKI kernel as text, which nothing here runs.
#include "src/algorithms/implicit_gemm_nki.hpp"

#include "src/algorithms/config_name.hpp"
#include "src/algorithms/registry.hpp"
#include "src/emit/nki_source.hpp"

namespace faltung {
namespace {

constexpr NameWord<nki::Emptying> kEmptying[] = {{nki::Emptying::scalar, ""}, {nki::Emptying::both, "both"}};

struct Named : nki::Choice {
  template <class Name>
  void spell(Name& name) {
    name.key("tp", rows, cols, images);
    name.key("kb", filters);
    name.word(emptying, kEmptying);
  }
};

Named choice_of(const std::string& config) {
  Named choice;
  if (!parse_config(config, choice)) {
    throw Error(Status::bad_problem,
                "implicit_gemm_nki has no config '" + config +
                    "'; one is tp8x56x1_kb128: rows, columns and images of a block of y, and "
                    "the filters whose weights are in SBUF at a time");
  }
  return choice;
}

class ImplicitGemmNki : public Algorithm {
 public:
  ImplicitGemmNki()
      : Algorithm(
            {"implicit_gemm_nki",
             "products on the tensor engine of AWS's Trainium, a tap of the filter at a time, emitted as an "
             "NKI kernel",
             "nki"}) {}

 private:
  Support accepts(const Problem& p, const Target& target) const override {
    if (target.device.kind != "nki")
      return Support::declined("it is for AWS's Trainium, nki:trn2 and nki:trn1");
    const std::string why = nki::declined(p, nki_core(target.device.id));
    return why.empty() ? Support::supported() : Support::declined(why);
  }
  // A row of pixels is an image of height 1. What is declined is told in this algorithm's own words.
  bool is_native(const Problem&) const override { return true; }
  bool fuses(const Problem&, const Target&) const override { return true; }

  std::vector<Candidate> list(const Problem& p, const Target& target) const override {
    const NkiCore& core = nki_core(target.device.id);
    std::vector<Candidate> all;
    for (const nki::Choice& choice : nki::choices(p, core)) all.push_back(candidate_of(p, {choice}, core));
    return all;
  }
  Maker parse(const std::string& config, Direction) const override { return maker(choice_of(config)); }

  static Maker maker(const Named& choice) {
    return [choice](const Problem& p, const Target& target) {
      return candidate_of(p, choice, nki_core(target.device.id));
    };
  }

  static Candidate candidate_of(const Problem& p, const Named& choice, const NkiCore& core) {
    const nki::Schedule schedule = nki::schedule(p, choice, core);
    const nki::Prediction prediction = nki::predict(p, schedule, core);
    Candidate c;
    c.config = config_name(choice);
    c.cost = {prediction.ms, prediction.bound >= nki::Engine::dma_in ? Bound::bytes : Bound::arithmetic};
    c.accuracy = dot_product_accuracy(p);
    c.recipe = [p, schedule, config = c.config, &core] { return recipe(p, schedule, config, core); };
    c.maker = maker(choice);
    return c;
  }

  static Recipe recipe(const Problem& p, const nki::Schedule& schedule, const std::string& config,
                       const NkiCore& core) {
    jit::Source source;
    source.name = "implicit_gemm_nki/" + config;
    source.entry = "convolution";
    source.text = nki::source(p, schedule, core, source.name);
    std::vector<StepArgument> arguments = {in(Place::x), in(Place::w), out(Place::y)};
    if (p.epilogue.bias) arguments.push_back(in(Place::bias));
    if (p.epilogue.residual) arguments.push_back(in(Place::residual));
    Recipe recipe;
    recipe.steps.push_back(launch(source.name, std::move(source), {}, std::move(arguments)));
    return recipe;
  }
};

}  // namespace

std::vector<std::string> engines_of_nki(const Problem& p, const std::string& config, const NkiCore& core) {
  return nki::table(nki::predict(p, nki::schedule(p, choice_of(config), core), core));
}

std::unique_ptr<Algorithm> make_implicit_gemm_nki() { return std::make_unique<ImplicitGemmNki>(); }

}  // namespace faltung
