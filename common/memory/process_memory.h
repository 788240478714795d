#pragma once

#include <cstdint>

namespace shardbench::memory {

/// What the kernel says about this process, in bytes. -1: not known on this system.
/// Both resident figures count pages shared with peers in full once this process has touched them;
/// the proportional one divides them by the number of processes that map them.
struct ProcessMemory {
  std::int64_t resident = -1;       ///< VmRSS
  std::int64_t peak_resident = -1;  ///< VmHWM: largest so far
  std::int64_t proportional = -1;   ///< Pss; walks the page tables, milliseconds per GiB
};

/// Resident and peak only (cheap); `proportional` stays -1.
ProcessMemory resident_memory();
/// All three.
ProcessMemory process_memory();

/// Begins VmHWM anew at what is resident now; does nothing where the system does not offer it.
void reset_peak_resident();

/// Minor page faults of this process since it started.
std::int64_t minor_faults();

}  // namespace shardbench::memory
