// Every recorded /tokenize and /detokenize answer of the peer for the two real models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "bankml/model/config.hpp"
#include "bankml/model/gguf.hpp"
#include "bankml/text/tokenizer.hpp"

namespace bankml {
namespace {

namespace json = boost::json;

std::vector<TokenId> token_ids(const json::value& ids) {
  std::vector<TokenId> out;
  for (const json::value& id : ids.as_array()) out.push_back(id.to_number<TokenId>());
  return out;
}

class TokenizerFixture : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const char* models = std::getenv("BANKML_MODELS");
    if (models == nullptr) GTEST_SKIP() << "BANKML_MODELS does not name a folder with the real models";
    const auto model = std::filesystem::path(models) / (std::string(GetParam()) + ".gguf");
    tokenizer_ = std::make_unique<Tokenizer>(read_vocabulary(GgufFile::open(model)));
    std::ifstream in(std::filesystem::path(BANKML_TEST_DATA) / "fixtures" / (std::string(GetParam()) + ".json"));
    ASSERT_TRUE(in) << "no fixtures for " << GetParam();
    fixtures_ = json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
  }

  const json::array& cases(const char* name) const { return fixtures_.at(name).as_array(); }

  std::unique_ptr<Tokenizer> tokenizer_;
  json::value fixtures_;
};

TEST_P(TokenizerFixture, EncodesAsRecorded) {
  ASSERT_FALSE(cases("tokenize").empty());
  for (const json::value& c : cases("tokenize")) {
    const bool add_special = c.at("add_special").as_bool(), parse_special = c.at("parse_special").as_bool();
    EXPECT_THAT(tokenizer_->encode(c.at("content").as_string(), add_special, parse_special),
                testing::ElementsAreArray(token_ids(c.at("tokens"))))
        << json::serialize(c.at("content")) << " add_special " << add_special << " parse_special " << parse_special;
  }
}

TEST_P(TokenizerFixture, DecodesAsRecorded) {
  ASSERT_FALSE(cases("detokenize").empty());
  for (const json::value& c : cases("detokenize")) {
    EXPECT_EQ(tokenizer_->decode(token_ids(c.at("tokens")), true), c.at("content").as_string());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TokenizerFixture, testing::Values("SmolLM2-135M-Instruct.Q4_1", "gemma-3-270m-q4_k_m"),
                         [](const auto& suite) {
                           return std::string(suite.param).substr(0, 5) == "SmolL" ? "SmolLM2" : "Gemma3";
                         });

}  // namespace
}  // namespace bankml
