// An algorithm's first candidate for a problem, held to the reference.
#ifndef FALTUNG_TESTS_VERIFY_FIRST_HPP_
#define FALTUNG_TESTS_VERIFY_FIRST_HPP_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "src/problem/parse.hpp"
#include "tests/builder.hpp"

namespace faltung {

// Counts in `verified` what the algorithm supports; of the rest it has to say why.
inline void verify_first(const Algorithm& algorithm, const Problem& problem, Builder& builder,
                         const std::shared_ptr<const Parallel>& parallel, int& verified) {
  const Support support = algorithm.supports(problem, builder.target());
  EXPECT_TRUE(support.yes || !support.why.empty());
  if (!support.yes) return;
  const Candidate candidate = algorithm.candidates(problem, builder.target()).front();
  Verifier verifier(problem, builder.device(), parallel, 1);
  const Report report = verifier.kernel(candidate, builder.store());
  EXPECT_TRUE(passed(report)) << to_string(problem) << " by " << candidate.kernel() << ": " << report.why;
  EXPECT_EQ(algorithm.candidate(problem, candidate.config, builder.target()).workspace_bytes,
            candidate.workspace_bytes);
  ++verified;
}

// What the parser says of a problem that it refuses.
inline std::string refusal(const char* text) {
  try {
    parse_problem(text);
    return "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::bad_problem);
    return error.what();
  }
}

}  // namespace faltung

#endif  // FALTUNG_TESTS_VERIFY_FIRST_HPP_
