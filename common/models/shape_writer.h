#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/models/config.h"
#include "common/models/fields.h"

namespace shardbench::models {

/// Writes the module tree down in pre-order, as the constructors of the modules build it.
class ShapeWriter {
 public:
  explicit ShapeWriter(sharding::ModelShape& shape) : shape_(shape) {}

  /// Adds a module below `parent` (-1: the root) and returns its index.
  int module(int parent, const std::string& name, const char* class_name) {
    std::string path = name;
    if (parent > 0) path = shape_.modules[static_cast<std::size_t>(parent)].path + "." + name;
    shape_.modules.push_back({std::move(path), class_name, parent});
    return static_cast<int>(shape_.modules.size()) - 1;
  }

  /// Adds a parameter of `module` and returns its index.
  std::size_t parameter(int module, const char* name, std::vector<std::int64_t> dims) {
    const std::string& path = shape_.modules[static_cast<std::size_t>(module)].path;
    const bool decay = dims.size() >= 2;
    shape_.parameters.push_back(
        {path + "." + name, std::move(dims), module, true, decay, {}, false});
    return shape_.parameters.size() - 1;
  }

  void linear(int parent, const char* name, std::int64_t in, std::int64_t out, bool bias = true) {
    const int m = module(parent, name, "Linear");
    parameter(m, "weight", {out, in});
    if (bias) parameter(m, "bias", {out});
  }

  void layer_norm(int parent, const char* name, std::int64_t width) {
    const int m = module(parent, name, "LayerNorm");
    parameter(m, "weight", {width});
    parameter(m, "bias", {width});
  }

  void rms_norm(int parent, const char* name, std::int64_t width) {
    parameter(module(parent, name, "RMSNorm"), "weight", {width});
  }

  std::size_t embedding(int parent, const char* name, std::int64_t rows, std::int64_t width) {
    return parameter(module(parent, name, "Embedding"), "weight", {rows, width});
  }

  /// The table of which every token looks up a row.
  std::size_t token_embedding(int parent, const char* name, const ModelConfig& config) {
    const std::size_t table = embedding(parent, name, config.vocab, config.hidden);
    shape_.parameters[table].by_token = true;
    return table;
  }

  /// An output head of its own, whole or in parts.
  void head(int parent, const char* name, const ModelConfig& config) {
    if (config.split_head == 1) {
      linear(parent, name, config.hidden, config.vocab, /*bias=*/false);
      return;
    }
    const int all = module(parent, name, "SplitHead");
    int part = 0;
    for (const std::int64_t rows : head_rows(config)) {
      parameter(module(all, std::to_string(part++), "HeadBlock"), "weight", {rows, config.hidden});
    }
  }

  /// A Linear that uses `parameter` of another module.
  void tied_linear(int parent, const char* name, std::size_t parameter) {
    shape_.parameters[parameter].also_used_by.push_back(module(parent, name, "Linear"));
  }

 private:
  sharding::ModelShape& shape_;
};

/// One per family: the tree and the parameters of a model, as its module's constructor makes them.
void write_convnet(ShapeWriter& writer, const ModelConfig& config);
void write_llama(ShapeWriter& writer, const ModelConfig& config);

}  // namespace shardbench::models
