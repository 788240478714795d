#pragma once

// Loops marked with SHARDBENCH_CLONES are compiled for several instruction sets and chosen at load
// time. Their sources are compiled with SHARDBENCH_EXACT_FLAGS (no contraction into FMA), so every
// clone gives the same bits. Sanitizers cannot run the resolvers, so there it is plain code.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define SHARDBENCH_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define SHARDBENCH_CLONES
#endif
