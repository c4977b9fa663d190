/* Is linked to no MPI: it opens the library that its argument names, and runs the main that it finds there. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
  void *library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  int (*run)(int, char **) = (int (*)(int, char **))dlsym(library, "main");
  return run(argc, argv);
}
