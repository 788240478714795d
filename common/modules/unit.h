#pragma once

#include <string>
#include <vector>

namespace shardbench {

class Module;
class Parameter;

/// Parameters unsharded, resharded and reduced together. Owned by the model it was cut from; the
/// strategies keep their own state beside it, by `index`.
struct Unit {
  int index = 0;
  std::string name;
  Module* anchor = nullptr;            ///< entered when this module's forward is called
  std::vector<Parameter*> parameters;  ///< canonical order
  bool is_root = false;                ///< anchored at the model itself
};

}  // namespace shardbench
