#include "server/service.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "server/fake_service.hpp"
#include "support/expect_error.hpp"

namespace bankml::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

Request make_request(std::string method, std::string path, std::string body = {}, Headers headers = {}) {
  const std::size_t question = std::min(path.find('?'), path.size());
  Request request;
  request.method = std::move(method);
  request.query = path.substr(std::min(question + 1, path.size()));
  request.path = path.substr(0, question);
  request.body = std::move(body);
  request.headers = std::move(headers);
  return request;
}

class ServiceTest : public testing::Test {
 protected:
  void make_ready() { service().set_ready(app_.app()); }
  Service& service() {
    if (!service_) service_ = std::make_unique<Service>(options);
    return *service_;
  }
  // The whole answer, also of a generation that does not stream.
  Response ask(const Request& request) {
    Reply reply = service().handle(request);
    if (auto* response = std::get_if<Response>(&reply)) return *response;
    auto& pending = *std::get<std::unique_ptr<PendingReply>>(reply);
    pending.start([] {});
    return pending.poll().response.value_or(Response{});
  }
  Response get(const std::string& path, Headers headers = {}) {
    return ask(make_request("GET", path, {}, std::move(headers)));
  }
  Response post(const std::string& path, const std::string& body) { return ask(make_request("POST", path, body)); }
  // The body of an answer that has this status.
  boost::json::object json(const Response& response, int status = 200) {
    EXPECT_EQ(response.status, status) << response.body;
    return boost::json::parse(response.body).as_object();
  }
  std::string error_type(const Response& response, int status) {
    const boost::json::object body = json(response, status);
    EXPECT_EQ(body.at("error").at("code").as_int64(), status);
    return std::string(body.at("error").at("type").as_string());
  }

  ServerOptions options;
  FakeApp app_;

 private:
  std::unique_ptr<Service> service_;
};

TEST_F(ServiceTest, AnswersThatTheModelIsLoading) {
  EXPECT_EQ(error_type(get("/health"), 503), "unavailable_error");
  EXPECT_EQ(error_type(get("/nothing"), 503), "unavailable_error");
  make_ready();
  EXPECT_EQ(json(get("/health")).at("status"), "ok");
}

// docs/http-api.md, 17.
TEST_F(ServiceTest, AnswersWithoutAModelWhatNeedsNone) {
  options.policy.api_keys = {"key"};
  options.cors_origins = "*";
  service().serve_without_model();
  const Headers key = {{"Authorization", "Bearer key"}};
  EXPECT_EQ(json(get("/health")).at("status"), "ok");
  EXPECT_TRUE(json(get("/v1/models", key)).at("data").as_array().empty());
  EXPECT_EQ(error_type(get("/v1/models"), 401), "authentication_error");
  EXPECT_EQ(error_type(get("/slots", key), 503), "unavailable_error");
  EXPECT_EQ(error_type(get("/nothing", key), 404), "not_found_error");
  EXPECT_EQ(ask(make_request("OPTIONS", "/completion")).status, 200);
}

TEST_F(ServiceTest, DoesNotLogThoseWhoAskWhetherTheModelIsLoaded) {
  testing::internal::CaptureStderr();
  get("/health");
  get("/v1/health");
  get("/props");
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, Not(HasSubstr("/health")));
  EXPECT_THAT(log, Not(HasSubstr("v1")));
  EXPECT_THAT(log, HasSubstr("/props"));
}

TEST_F(ServiceTest, ShowsAPageAlsoWhileTheModelIsLoading) {
  EXPECT_THAT(get("/").body, HasSubstr("<!doctype html>"));
  make_ready();
  EXPECT_THAT(get("/index.html").body, HasSubstr("<!doctype html>"));
}

TEST_F(ServiceTest, ServesThePageOnceToThoseWhoHaveIt) {
  options.policy.api_keys = {"key"};
  make_ready();
  for (const char* path : {"/", "/sw.js", "/manifest.webmanifest", "/_app/version.json", "/page/main.js"}) {
    const Response response = get(path);
    EXPECT_EQ(response.status, 200) << path;
    const auto tag = std::ranges::find(response.headers, "ETag", &Headers::value_type::first);
    ASSERT_NE(tag, response.headers.end()) << path;
    const Response again = get(path, {{"If-None-Match", tag->second}});
    EXPECT_EQ(again.status, 304) << path;
    EXPECT_THAT(again.body, IsEmpty()) << path;
  }
}

TEST_F(ServiceTest, LetsThePageUseNothingButItsOwnFiles) {
  const Response page = get("/");
  const auto policy = std::ranges::find(page.headers, "Content-Security-Policy", &Headers::value_type::first);
  ASSERT_NE(policy, page.headers.end());
  EXPECT_THAT(policy->second, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy->second, Not(HasSubstr("unsafe")));
  EXPECT_THAT(page.body, Not(HasSubstr("://")));
  EXPECT_EQ(get("/page/page.css").content_type, "text/css; charset=utf-8");
  EXPECT_EQ(get("/page/main.js").content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(get("/page/icon.svg").content_type, "image/svg+xml");
}

TEST_F(ServiceTest, ServesADirectoryInsteadOfThePage) {
  options.static_path = BANKML_SOURCE_DIR "/docs";
  options.policy.api_keys = {"key"};
  make_ready();
  const Headers key = {{"Authorization", "Bearer key"}};
  EXPECT_EQ(get("/architecture.md", key).status, 200);
  EXPECT_EQ(get("/architecture.md").status, 401);
  EXPECT_EQ(get("/page/main.js", key).status, 404);
  EXPECT_EQ(get("/").status, 404);
  EXPECT_EQ(get("/props", key).status, 200);
}

TEST_F(ServiceTest, ShowsThePromptAndTheTextOfASlotOnlyWhenToldTo) {
  SlotSnapshot slot;
  slot.had_task = true;
  slot.params = std::make_shared<CompletionParams>();
  slot.texts = std::make_shared<SlotTexts>(SlotTexts{app_.tokenizer().encode("hello", false, false), " world"});
  app_.service().snapshots = {slot};
  options.slot_texts = true;
  make_ready();
  const boost::json::object shown = boost::json::parse(get("/slots").body).at(0).as_object();
  EXPECT_EQ(shown.at("prompt"), "hello");
  EXPECT_EQ(shown.at("generated"), " world");
  EXPECT_TRUE(shown.at("params").as_object().contains("stop"));
}

TEST_F(ServiceTest, DescribesItself) {
  make_ready();
  const auto document = json(get("/openapi.json"));
  EXPECT_EQ(document.at("openapi"), "3.1.0");
  for (const auto& [path, methods] : document.at("paths").as_object()) {
    for (const auto& [method, operation] : methods.as_object()) {
      const bool reads = method == "get";
      std::string concrete(path);
      if (const std::size_t brace = concrete.find("{id}"); brace != std::string::npos) concrete.replace(brace, 4, "0");
      EXPECT_NE(ask(make_request(reads ? "GET" : "POST", concrete, "{}")).status, 404) << concrete;
    }
  }
}

TEST_F(ServiceTest, HidesThePageWithoutUi) {
  options.ui = false;
  make_ready();
  EXPECT_EQ(get("/").status, 404);
}

TEST_F(ServiceTest, DoesNotFindUnknownPathsOrMethods) {
  make_ready();
  EXPECT_EQ(error_type(get("/nothing"), 404), "not_found_error");
  EXPECT_EQ(error_type(get("/completion"), 404), "not_found_error");
  EXPECT_EQ(error_type(get("/health/"), 404), "not_found_error");
  EXPECT_EQ(error_type(ask(make_request("DELETE", "/health")), 404), "not_found_error");
}

TEST_F(ServiceTest, RefusesRoutesThatAreNotBuilt) {
  make_ready();
  EXPECT_EQ(error_type(post("/v1/embeddings", "{}"), 501), "not_supported_error");
  EXPECT_EQ(error_type(post("/rerank", "{}"), 501), "not_supported_error");
}

TEST_F(ServiceTest, AnswersForFeaturesThatAreAlwaysOff) {
  make_ready();
  EXPECT_EQ(get("/lora-adapters").body, "[]");
  EXPECT_EQ(get("/tools").body, R"({"error":{"message":"this feature is off","type":"feature_disabled"}})");
  EXPECT_EQ(get("/cors-proxy").status, 403);
}

TEST_F(ServiceTest, WantsAKeyWhereKeysAreSet) {
  options.policy.api_keys = {"first", "second"};
  make_ready();
  EXPECT_EQ(error_type(get("/props"), 401), "authentication_error");
  EXPECT_EQ(error_type(get("/nothing"), 401), "authentication_error");
  EXPECT_EQ(get("/props", {{"Authorization", "Bearer first"}}).status, 200);
  EXPECT_EQ(get("/props", {{"authorization", "second"}}).status, 200);
  EXPECT_EQ(get("/props", {{"X-Api-Key", "Bearer second"}}).status, 200);
  for (const char* wrong : {"Bearer firs", "Bearer firstfirst", "bearer first", "Bearer ", "Bearer third"}) {
    EXPECT_EQ(get("/props", {{"Authorization", wrong}, {"X-Api-Key", "first"}}).status, 401) << wrong;
  }
}

TEST_F(ServiceTest, LetsOnlyAdminsTouchWhatBelongsToOthers) {
  options.policy.api_keys = {"user"};
  options.policy.admin_keys = {"admin"};
  options.props = true;
  make_ready();
  const Headers user = {{"Authorization", "Bearer user"}}, admin = {{"Authorization", "Bearer admin"}};
  for (const auto& [method, path] :
       {std::pair("POST", "/props"), {"POST", "/slots/0?action=erase"}, {"GET", "/cache"}}) {
    EXPECT_EQ(error_type(ask(make_request(method, path)), 401), "authentication_error") << path;
    EXPECT_EQ(error_type(ask(make_request(method, path, {}, user)), 403), "permission_error") << path;
    EXPECT_EQ(ask(make_request(method, path, {}, admin)).status, 200) << path;
  }
  EXPECT_EQ(get("/slots", user).status, 200);
  EXPECT_EQ(get("/slots", admin).status, 200);
}

TEST_F(ServiceTest, TakesNewKeysWhileItRuns) {
  options.policy.api_keys = {"old"};
  make_ready();
  ServerPolicy policy;
  policy.api_keys = {"new"};
  service().reload(policy);
  EXPECT_EQ(get("/props", {{"Authorization", "old"}}).status, 401);
  EXPECT_EQ(get("/props", {{"Authorization", "new"}}).status, 200);
}

TEST_F(ServiceTest, ListsWhatTheCacheHolds) {
  CachedConversation conversation;
  conversation.tokens = 7;
  conversation.bytes = 700;
  conversation.saved = std::chrono::steady_clock::now() - std::chrono::seconds(100);
  conversation.hits = 2;
  app_.service().conversations = {conversation};
  make_ready();
  const boost::json::object body = json(get("/cache"));
  const boost::json::object& listed = body.at("conversations").at(0).as_object();
  EXPECT_EQ(listed.at("tokens").as_int64(), 7);
  EXPECT_EQ(listed.at("hits").as_int64(), 2);
  EXPECT_GE(listed.at("age_s").to_number<double>(), 100);
}

TEST_F(ServiceTest, RefusesGenerationsWhenTheQueueIsFull) {
  options.policy.limits.queue = 1;
  app_.service().script.reset();
  make_ready();
  Reply first = service().handle(make_request("POST", "/completion", R"({"prompt":"a"})"));
  std::get<std::unique_ptr<PendingReply>>(first)->start([] {});
  Reply second = service().handle(make_request("POST", "/completion", R"({"prompt":"a"})"));
  auto& refused = *std::get<std::unique_ptr<PendingReply>>(second);
  expect_error(ErrorKind::busy, "1 requests are waiting", [&] { refused.start([] {}); });
  // One that has a slot waits no more.
  app_.service().job(1).sink(Started{});
  refused.start([] {});
  app_.service().play(1, {});
  app_.service().play(2, {});
}

TEST_F(ServiceTest, LetsEverybodySeeHealthAndPage) {
  options.policy.api_keys = {"key"};
  make_ready();
  for (const char* path : {"/health", "/v1/health", "/"}) EXPECT_EQ(get(path).status, 200) << path;
}

TEST_F(ServiceTest, LivesUnderItsPrefixOnly) {
  options.api_prefix = "/p";
  options.policy.api_keys = {"key"};
  make_ready();
  const Headers key = {{"Authorization", "Bearer key"}};
  EXPECT_EQ(get("/p/props", key).status, 200);
  EXPECT_EQ(get("/props", key).status, 404);
  EXPECT_EQ(get("/p/health").status, 401);
}

TEST_F(ServiceTest, AnswersOptionsAnywhere) {
  options.policy.api_keys = {"key"};
  const Response response = ask(make_request("OPTIONS", "/nothing"));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.content_type, "text/html");
  EXPECT_THAT(response.headers, ElementsAre(Pair("Access-Control-Allow-Credentials", "true"),
                                            Pair("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"),
                                            Pair("Access-Control-Allow-Headers", "*")));
}

TEST_F(ServiceTest, EchoesTheOriginByDefault) {
  EXPECT_THAT(service().cors_headers("http://a.b"), ElementsAre(Pair("Access-Control-Allow-Origin", "http://a.b")));
  EXPECT_THAT(service().cors_headers(""), ElementsAre(Pair("Access-Control-Allow-Origin", "")));
}

TEST_F(ServiceTest, AllowsEveryOriginWithoutCredentials) {
  options.cors_credentials = false;
  EXPECT_THAT(service().cors_headers("http://a.b"), ElementsAre(Pair("Access-Control-Allow-Origin", "*")));
}

TEST_F(ServiceTest, AllowsLocalOriginsOnly) {
  options.cors_origins = "localhost";
  for (const char* local : {"http://localhost", "https://localhost:8080", "http://127.0.0.1:1", "http://[::1]:80"}) {
    EXPECT_THAT(service().cors_headers(local), ElementsAre(Pair("Access-Control-Allow-Origin", local)));
  }
  for (const char* other : {"http://localhost.evil.org", "http://a.b", "localhost", ""}) {
    EXPECT_THAT(service().cors_headers(other), IsEmpty()) << other;
  }
}

// A browser asks first only before requests that no form could make, and these change slots, too.
TEST_F(ServiceTest, DoesNotWorkForPagesOfOtherSitesThatMayNotCallIt) {
  options.cors_origins = "localhost";
  make_ready();
  const auto status = [&](const char* method, const char* origin, const char* site) {
    const Headers headers = {{"Origin", origin}, {"Sec-Fetch-Site", site}};
    const Response response = ask(make_request(method, "/tokenize", R"({"content":"a"})", headers));
    return response.status;
  };
  EXPECT_EQ(status("POST", "https://a.b", "cross-site"), 403);
  EXPECT_EQ(status("POST", "null", "cross-site"), 403);
  EXPECT_EQ(status("POST", "http://localhost:3000", "cross-site"), 200);
  EXPECT_EQ(status("POST", "https://behind.a.proxy", "same-origin"), 200);
  EXPECT_EQ(status("OPTIONS", "https://a.b", "cross-site"), 200);
  EXPECT_EQ(get("/", {{"Sec-Fetch-Site", "cross-site"}}).status, 200) << "a link to the page";
}

TEST_F(ServiceTest, WorksForPagesOfTheSitesThatMayCallIt) {
  options.cors_origins = "https://a.b";
  make_ready();
  const auto status = [&](const char* origin) {
    return ask(make_request("POST", "/tokenize", "{}", {{"Origin", origin}, {"Sec-Fetch-Site", "cross-site"}})).status;
  };
  EXPECT_EQ(status("https://a.b"), 200);
  EXPECT_EQ(status("https://c.d"), 403);
}

TEST_F(ServiceTest, ShowsAnotherOriginSettingVerbatim) {
  options.cors_origins = "https://my.site";
  EXPECT_THAT(service().cors_headers("http://a.b"),
              ElementsAre(Pair("Access-Control-Allow-Origin", "https://my.site")));
}

TEST_F(ServiceTest, Tokenizes) {
  make_ready();
  EXPECT_EQ(post("/tokenize", R"({"content":"ab</s>"})").body, R"({"tokens":[97,98,257]})");
  EXPECT_EQ(post("/tokenize", R"({"content":"</s>","parse_special":false})").body, R"({"tokens":[60,47,115,62]})");
  EXPECT_EQ(post("/tokenize", R"({"content":["a",5,"b"]})").body, R"({"tokens":[97,5,98]})");
  EXPECT_EQ(post("/tokenize", R"({"content":"a","add_special":"x"})").body, R"({"tokens":[97]})");
  EXPECT_EQ(post("/tokenize", "{}").body, R"({"tokens":[]})");
}

TEST_F(ServiceTest, ShowsPiecesAsBytesWhereTheyAreNoText) {
  make_ready();
  EXPECT_EQ(post("/tokenize", R"({"content":"aé","with_pieces":true})").body,
            R"({"tokens":[{"id":97,"piece":"a"},{"id":195,"piece":[195]},{"id":169,"piece":[169]}]})");
}

TEST_F(ServiceTest, AnswersWrongContentWith500AsThePeerDoes) {
  make_ready();
  for (const char* body : {"", R"({"content":5})", R"({"content":null})", R"({"content":[[1]]})"}) {
    EXPECT_EQ(error_type(post("/tokenize", body), 500), "server_error") << body;
  }
  for (const char* body :
       {"", R"({"tokens":"a"})", R"({"tokens":[258]})", R"({"tokens":[-1]})", R"({"tokens":["a"]})"}) {
    EXPECT_EQ(error_type(post("/detokenize", body), 500), "server_error") << body;
  }
}

TEST_F(ServiceTest, Detokenizes) {
  make_ready();
  EXPECT_EQ(post("/detokenize", R"({"tokens":[32,97,257]})").body, R"({"content":" a</s>"})");
  EXPECT_EQ(post("/detokenize", "{}").body, R"({"content":""})");
}

TEST_F(ServiceTest, RendersTheTemplateWithoutGenerating) {
  make_ready();
  const auto body = json(post("/apply-template", R"({"messages":[{"role":"user","content":"hi"}]})"));
  EXPECT_EQ(body.at("prompt"), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(app_.service().job_count(), 0u);
}

TEST_F(ServiceTest, CountsTheTokensOfAChat) {
  make_ready();
  EXPECT_EQ(post("/v1/chat/completions/input_tokens", R"({"messages":[{"role":"user","content":"hi"}]})").body,
            R"({"input_tokens":52,"object":"response.input_tokens"})");
}

TEST_F(ServiceTest, DescribesTheServerInProps) {
  make_ready();
  const auto props = json(get("/props"));
  EXPECT_EQ(props.at("total_slots").as_int64(), 2);
  EXPECT_EQ(props.at("default_generation_settings").at("n_ctx").as_int64(), 256);
  EXPECT_FALSE(props.at("default_generation_settings").at("params").as_object().contains("stop"));
  EXPECT_EQ(props.at("model_path"), "/models/tiny.gguf");
  EXPECT_EQ(props.at("bos_token"), "<s>");
  EXPECT_TRUE(std::string_view(props.at("build_info").as_string()).starts_with('b'));
}

TEST_F(ServiceTest, ListsTheModel) {
  make_ready();
  const auto models = json(get("/v1/models"));
  EXPECT_EQ(models.at("data").at(0).at("id"), "tiny");
  EXPECT_EQ(models.at("data").at(0).at("meta").at("n_vocab").as_int64(), 258);
  EXPECT_EQ(models.at("data").at(0).at("meta").at("vocab_type").as_int64(), 2);
  EXPECT_EQ(models.at("models").at(0).at("name"), "tiny");
}

TEST_F(ServiceTest, ShowsMetricsOnlyWhenAsked) {
  make_ready();
  EXPECT_EQ(error_type(get("/metrics"), 501), "not_supported_error");
}

TEST_F(ServiceTest, TellsOfCheckpointsAndTheirBytes) {
  options.metrics = true;
  EngineMetrics& now = app_.service().values;
  now.slot_checkpoints = 3;
  now.slot_checkpoint_bytes = 3000;
  now.cache_checkpoints = 5;
  now.cache_checkpoint_bytes = 5000;
  now.checkpoints_made = 9;
  now.checkpoints_restored = 2;
  SlotSnapshot slot;
  slot.had_task = true;
  slot.checkpoints = 3;
  slot.checkpoint_bytes = 3000;
  app_.service().snapshots = {slot};
  make_ready();
  const std::string page = get("/metrics").body;
  for (const char* line : {"bankmld_slot_checkpoints 3", "bankmld_slot_checkpoint_bytes 3000",
                           "bankmld_prompt_cache_checkpoints 5", "bankmld_prompt_cache_checkpoint_bytes 5000",
                           "bankmld_checkpoints_made_total 9", "bankmld_checkpoints_restored_total 2"})
    EXPECT_THAT(page, HasSubstr("\n" + std::string(line) + "\n"));
  const boost::json::value shown = boost::json::parse(get("/slots").body).at(0);
  EXPECT_EQ(shown.at("n_checkpoints").as_int64(), 3);
  EXPECT_EQ(shown.at("checkpoint_bytes").as_int64(), 3000);
}

TEST_F(ServiceTest, ShowsRatesSinceTheLastReading) {
  options.metrics = true;
  app_.service().values.prompt_tokens = 100;
  app_.service().values.prompt_seconds = 2;
  make_ready();
  EXPECT_THAT(get("/metrics").body,
              HasSubstr("# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total 100\n"));
  app_.service().values.prompt_tokens = 130;
  app_.service().values.prompt_seconds = 3;
  EXPECT_THAT(get("/metrics").body, HasSubstr("\nllamacpp:prompt_tokens_seconds 30\n"));
  EXPECT_THAT(get("/metrics").body, HasSubstr("\nllamacpp:prompt_tokens_seconds 0\n"));
}

TEST_F(ServiceTest, ListsSlots) {
  make_ready();
  SlotSnapshot slot;
  slot.context = 256;
  app_.service().snapshots = {slot};
  EXPECT_EQ(get("/slots").body, R"([{"id":0,"n_ctx":256,"speculative":false,"is_processing":false}])");
}

TEST_F(ServiceTest, ListsWhatTheSlotsTaskWasAskedFor) {
  make_ready();
  post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"}],"stream":true})");
  SlotSnapshot slot;
  slot.had_task = true;
  slot.params = app_.service().job(1).params;
  app_.service().snapshots = {slot};
  const boost::json::value slots = boost::json::parse(get("/slots").body);
  EXPECT_TRUE(slots.at(0).at("params").at("stream").as_bool());
  EXPECT_EQ(slots.at(0).at("params").at("reasoning_format"), "deepseek");
}

TEST_F(ServiceTest, SetsNoAdapters) {
  make_ready();
  EXPECT_EQ(post("/lora-adapters", "[]").body, R"({"success":true})");
  EXPECT_EQ(error_type(post("/lora-adapters", "{}"), 400), "invalid_request_error");
  EXPECT_EQ(error_type(post("/lora-adapters", R"([{"id":0,"scale":1}])"), 501), "not_supported_error");
}

TEST_F(ServiceTest, FailsOnRequestWhenNoSlotIsIdle) {
  make_ready();
  app_.service().snapshots[0].processing = true;
  EXPECT_EQ(get("/slots").status, 200);
  EXPECT_EQ(get("/slots?fail_on_no_slot=").status, 200);
  const Response refused = get("/slots?fail_on_no_slot=0");  // whatever the value
  EXPECT_EQ(error_type(refused, 503), "unavailable_error");
  EXPECT_THAT(refused.body, HasSubstr(R"("message":"no slot available")"));
}

TEST_F(ServiceTest, SavesRestoresAndErasesSlots) {
  make_ready();
  EXPECT_EQ(post("/slots/1?action=save", R"({"filename":"a.bin"})").body,
            R"({"id_slot":1,"filename":"a.bin","n_saved":5,"n_written":640,"timings":{"save_ms":1.5}})");
  EXPECT_EQ(app_.service().last_action, "save 1 a.bin");
  EXPECT_EQ(error_type(post("/slots/0?action=restore", R"({"filename":"b.bin"})"), 400), "invalid_request_error");
  EXPECT_EQ(post("/slots/0?action=erase", "").body, R"({"id_slot":0,"n_erased":7})");
}

TEST_F(ServiceTest, ChecksSlotActionsInOrder) {
  make_ready();
  EXPECT_EQ(post("/slots/x?action=save", "{}").status, 400);
  EXPECT_EQ(post("/slots/0?action=nothing", "{}").status, 400);
  EXPECT_EQ(post("/slots/0", "{}").status, 400);
  EXPECT_EQ(post("/slots/0?action=save", "{}").status, 500);
  EXPECT_EQ(post("/slots/0?action=save", R"({"filename":5})").status, 500);
  EXPECT_EQ(post("/slots/0/?action=erase", "{}").status, 200);
  EXPECT_EQ(post("/slots/0?action=erase&action=zzz", "{}").status, 400);
  EXPECT_EQ(post("/slots/0?action=zzz&action=erase", "{}").status, 200);
  app_.service().slot_files = false;
  EXPECT_EQ(error_type(post("/slots/x?action=save", "{}"), 501), "not_supported_error");
}

TEST_F(ServiceTest, RefusesPropertiesUnlessTheyAreOn) {
  make_ready();
  EXPECT_EQ(error_type(post("/props", "x"), 501), "not_supported_error");
}

TEST_F(ServiceTest, AnswersMalformedBodiesWith500) {
  make_ready();
  for (const char* path : {"/completion", "/v1/completions", "/v1/chat/completions", "/apply-template"}) {
    EXPECT_EQ(error_type(post(path, "{"), 500), "server_error") << path;
    EXPECT_EQ(error_type(post(path, "[1]"), 400), "invalid_request_error") << path;
  }
}

TEST_F(ServiceTest, ChecksChatFields) {
  make_ready();
  const auto chat = [&](const std::string& fields) {
    return post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],)" + fields + "}");
  };
  EXPECT_EQ(error_type(chat(R"("top_logprobs":2)"), 400), "invalid_request_error");
  EXPECT_EQ(error_type(chat(R"("tool_choice":"zz")"), 400), "invalid_request_error");
  EXPECT_EQ(error_type(chat(R"("response_format":{"type":"zz"})"), 400), "invalid_request_error");
  EXPECT_EQ(error_type(chat(R"("tools":5)"), 500), "server_error");
  EXPECT_EQ(error_type(chat(R"("response_format":{"type":"json_object"})"), 501), "not_supported_error");
  EXPECT_EQ(chat(R"("tools":[],"response_format":{"type":"text"},"tool_choice":{})").status, 200);
}

TEST_F(ServiceTest, ReadsOpenAiLogprobs) {
  make_ready();
  const auto n_probs = [&](const std::string& fields) {
    post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],)" + fields + "}");
    return app_.service().job(app_.service().job_count()).params->n_probs;
  };
  EXPECT_EQ(n_probs(R"("logprobs":true)"), 20);
  EXPECT_EQ(n_probs(R"("logprobs":true,"top_logprobs":3,"n_probs":9)"), 3);
  EXPECT_EQ(n_probs(R"("logprobs":false)"), 0);
  EXPECT_EQ(n_probs(R"("n_probs":2)"), 2);
}

TEST_F(ServiceTest, GivesCopiesTheSeedsThatFollow) {
  make_ready();
  post("/completion", R"({"prompt":"a","n":2,"seed":7})");
  EXPECT_EQ(app_.service().job(1).params->sampling.seed, 7u);
  EXPECT_EQ(app_.service().job(2).params->sampling.seed, 8u);
}

TEST_F(ServiceTest, SubmitsThePromptsOfARequestTogether) {
  make_ready();
  post("/completion", R"({"prompt":"a","n":2})");
  EXPECT_THAT(app_.service().submitted, ElementsAre(2));
  post("/completion", R"({"prompt":["a","b"]})");
  EXPECT_THAT(app_.service().submitted, ElementsAre(1, 1));
}

TEST_F(ServiceTest, AnswersAPromptThatIsTooLongWithItsCounts) {
  make_ready();
  app_.service().script.reset();
  Reply reply = service().handle(make_request("POST", "/completion", R"({"prompt":"a","stream":true})"));
  auto& pending = *std::get<std::unique_ptr<PendingReply>>(reply);
  pending.start([] {});
  Failed failure;
  failure.kind = ErrorKind::context_overflow;
  failure.message = "too long";
  failure.prompt_tokens = 500;
  failure.context = 256;
  app_.service().job(1).sink(failure);
  const ReplyPart part = pending.poll();
  EXPECT_FALSE(part.streaming);
  EXPECT_EQ(part.response->status, 400);
  EXPECT_EQ(part.response->body, R"({"error":{"code":400,"message":"too long","type":"exceed_context_size_error",)"
                                 R"("n_prompt_tokens":500,"n_ctx":256}})");
}

// A queue of them would take gigabytes.
TEST_F(ServiceTest, RefusesPromptsThatAreFarTooLongBeforeTheyWait) {
  make_ready();
  const auto error = json(post("/completion", R"({"prompt":")" + std::string((1 << 17) + 1, 'a') + R"("})"), 400)
                         .at("error")
                         .as_object();
  EXPECT_EQ(error.at("type"), "exceed_context_size_error");
  EXPECT_EQ(error.at("n_prompt_tokens").as_int64(), (1 << 17) + 1);
  EXPECT_EQ(error.at("n_ctx").as_int64(), 256);
  EXPECT_THAT(std::string(error.at("message").as_string()), HasSubstr("exceeds the available context size"));
}

TEST_F(ServiceTest, EndsAStreamThatFailsLaterWithAnErrorEvent) {
  make_ready();
  app_.service().script.reset();
  Reply reply = service().handle(make_request("POST", "/v1/completions", R"({"prompt":"a","stream":true})"));
  auto& pending = *std::get<std::unique_ptr<PendingReply>>(reply);
  pending.start([] {});
  app_.service().job(1).sink(Started{});
  EXPECT_TRUE(pending.poll().streaming);
  Failed failure;
  failure.message = "broken";
  app_.service().job(1).sink(failure);
  const ReplyPart part = pending.poll();
  EXPECT_TRUE(part.finished);
  EXPECT_EQ(part.text, "data: {\"error\":{\"code\":500,\"message\":\"broken\",\"type\":\"server_error\"}}\n\n");
}

TEST_F(ServiceTest, CancelsTheOthersWhenOnePromptFails) {
  make_ready();
  app_.service().script.reset();
  Reply reply = service().handle(make_request("POST", "/completion", R"({"prompt":["a","b"]})"));
  auto& pending = *std::get<std::unique_ptr<PendingReply>>(reply);
  pending.start([] {});
  app_.service().job(1).sink(Failed{});
  EXPECT_EQ(pending.poll().response->status, 500);
  app_.service().wait_for_cancel(2);
}

TEST_F(ServiceTest, CancelsWhatIsStillRunningWhenTheReplyIsGivenUp) {
  make_ready();
  app_.service().script.reset();
  {
    Reply reply = service().handle(make_request("POST", "/completion", R"({"prompt":"a"})"));
    std::get<std::unique_ptr<PendingReply>>(reply)->start([] {});
  }
  app_.service().wait_for_cancel(1);
  app_.service().job(1).sink(Started{});  // late events do no harm
}

}  // namespace
}  // namespace bankml::test
