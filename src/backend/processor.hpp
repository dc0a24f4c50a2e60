// The processors that a thread may run on, and the one that it does.
#ifndef FALTUNG_SRC_BACKEND_PROCESSOR_HPP_
#define FALTUNG_SRC_BACKEND_PROCESSOR_HPP_

namespace faltung {

// How many the calling thread may run on, as its affinity has it.
int allowed_processors();

// Where it runs; -1 where the system does not say.
int this_processor();

// Moves it to another one than this that it may run on, if there is one. It may be moved back.
void leave_processor(int processor);

}  // namespace faltung

#endif  // FALTUNG_SRC_BACKEND_PROCESSOR_HPP_
