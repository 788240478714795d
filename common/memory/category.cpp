#include "common/memory/category.h"

namespace shardbench::memory {
namespace {

thread_local Category current = Category::kOther;

}  // namespace

CategoryScope::CategoryScope(Category category) : previous_(current) { current = category; }
CategoryScope::~CategoryScope() { current = previous_; }

Category current_category() { return current; }

}  // namespace shardbench::memory
