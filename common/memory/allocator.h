#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstdint>

#include "common/memory/category.h"

namespace shardbench::memory {

/// Makes ATen take its CPU memory from the tracking allocator from now on: every allocation is
/// booked in tracker() with the bytes asked for, under the thread's current_category(). Process
/// wide and for good; the library never calls it by itself. Each rank calls it once, before its
/// first tensor. Calling it again does nothing.
///
/// Freed blocks are kept by size class and handed out again, so a steady state asks the system for
/// nothing. All data starts on 64 bytes. Thread-safe.
void install_allocator();

/// The allocator itself (never destroyed), for memory that should be tracked without installing.
c10::Allocator& tracking_allocator();

/// Books the tensor's whole storage under `category` from now on. Does nothing for a tensor whose
/// memory is not from the tracking allocator (undefined, empty, bound from elsewhere, resharded).
void retag(const at::Tensor& tensor, Category category);
/// Books `bytes` of the tensor's storage as kOther until it is freed: they are there only so that
/// data start where they should. Does nothing where retag does nothing, and on other devices.
void book_as_unused(const at::Tensor& tensor, std::int64_t bytes);
/// Who books memory of other devices: called by retag for tensors there. For the whole process.
void retag_on_devices_by(void (*book)(const void* data, Category category));

/// While on, freed and newly handed out blocks are filled with 0xFF: NaN as fp64, fp32, bf16 and
/// fp16, -1 as integer. A stress test for reads of memory that nobody has written.
void poison_freed(bool on);

/// How often the system was asked for memory since the program started.
std::int64_t system_allocations();

/// Bytes that free blocks keep from the system (block sizes: up to 1/8 more than was asked for).
std::int64_t cached_bytes();

/// Gives all free blocks back to the system, for instance after initialisation.
void release_cached();

}  // namespace shardbench::memory
