#include "common/data/token_source.h"

#include "common/core/error.h"
#include "common/data/synthetic.h"
#include "common/data/text.h"

namespace shardbench::data {

std::unique_ptr<TokenSource> open_source(const std::string& data, std::uint64_t seed,
                                         std::int64_t vocab) {
  if (data == "synthetic") return std::make_unique<SyntheticSource>(seed, vocab);
  auto text = std::make_unique<TextSource>(data);
  if (text->vocab() > vocab) {
    throw UserError::format(
        "--data: '{}' has byte values up to {}, but the model takes {} token values; give --vocab "
        "256",
        data, text->vocab() - 1, vocab);
  }
  return text;
}

}  // namespace shardbench::data
