// The faltung command.
#include "tools/faltung.hpp"

int main(int argc, char** argv) { return faltung::tools::run_faltung(argc, argv); }
