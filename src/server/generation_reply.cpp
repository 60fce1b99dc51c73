#include "server/generation_reply.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

#include "bankml/base/log.hpp"
#include "server/errors.hpp"
#include "server/mailbox.hpp"
#include "server/shapes.hpp"

namespace bankml {
namespace {

struct TaskEvent {
  std::size_t index;
  JobEvent event;
};

// What an unread event adds to the backlog. A result that ends its task is never too much.
std::size_t backlog_bytes(const JobEvent& event) {
  std::size_t bytes = sizeof(TaskEvent);
  const Piece* piece = std::get_if<Piece>(&event);
  if (piece == nullptr) return bytes;
  bytes += piece->text.size();
  if (piece->probability) bytes += piece->probability->top.size() * sizeof(TokenProbability);
  return bytes;
}

class GenerationReply final : public PendingReply {
 public:
  GenerationReply(CompletionService& engine, Generation generation, MakeFormat make_format)
      : engine_(engine),
        generation_(std::move(generation)),
        format_(make_format(generation_)),
        results_(generation_.tasks.size()),
        open_(generation_.tasks.size()) {
    ping_interval = std::chrono::seconds(std::max(generation_.request.sse_ping_interval_s, 0));
  }

  ~GenerationReply() override {
    if (mailbox_) mailbox_->close();
    cancel();
  }

  void start(std::function<void()> wake) override {
    mailbox_ = std::make_shared<Mailbox<TaskEvent>>(std::move(wake));
    const std::size_t copies = static_cast<std::size_t>(generation_.request.copies);
    std::vector<Submission> submissions;
    for (std::size_t i = 0; i < generation_.tasks.size(); i += copies) submissions.push_back(submission(i, copies));
    jobs_ = engine_.submit(std::move(submissions));
  }

  ReplyPart poll() override {
    ReplyPart part;
    for (TaskEvent& item : mailbox_->take()) {
      std::visit([&](auto& event) { handle(item.index, event, part); }, item.event);
      if (part.finished || part.response) break;
    }
    part.streaming = streaming_;
    return part;
  }

  bool overflowing() const override { return mailbox_->overflowing(); }

 private:
  // The tasks of one prompt, which are next to each other: it is computed once for all of them.
  Submission submission(std::size_t first, std::size_t copies) {
    Submission out;
    out.prompt = generation_.tasks[first].prompt;
    for (std::size_t i = first; i < first + copies; ++i) {
      out.params.push_back(generation_.tasks[i].params);
      out.sinks.push_back([mailbox = mailbox_, i](JobEvent&& event) {
        const std::size_t bytes = backlog_bytes(event);
        mailbox->put({i, std::move(event)}, bytes);
      });
    }
    return out;
  }

  bool streams() const noexcept { return generation_.request.stream; }

  void handle(std::size_t index, const Started& event, ReplyPart& part) {
    if (!streams()) return;
    streaming_ = true;
    if (event.progress) format_->append_progress(index, *event.progress, event.timings, part.text);
  }

  void handle(std::size_t index, const PromptProgress& event, ReplyPart& part) {
    if (streams()) format_->append_progress(index, event.progress, event.timings, part.text);
  }

  void handle(std::size_t index, const Piece& event, ReplyPart& part) {
    if (streams()) format_->append_piece(index, event, part.text);
  }

  void handle(std::size_t index, Done& event, ReplyPart& part) {
    try {
      take(index, event, part);
    } catch (const Error& error) {  // what the model wrote is not in the form that was asked for
      Failed failed;
      failed.kind = error.kind();
      failed.message = error.what();
      handle(index, failed, part);
    }
  }

  void take(std::size_t index, Done& event, ReplyPart& part) {
    log_info(
        "request {}, task {}: {} prompt tokens, {} of them cached, in {:.1f} ms; {} generated in {:.1f} ms; slot {}",
        request_id, jobs_[index], event.prompt_tokens, event.timings.cache_n, event.timings.prompt_ms,
        event.timings.predicted_n, event.timings.predicted_ms, event.id_slot);
    --open_;
    if (streams()) {
      streaming_ = true;
      format_->append_done(index, event, part.text);
      if (open_ > 0) return;
      format_->append_end(part.text);
      part.finished = true;
      return;
    }
    results_[index] = std::move(event);
    if (open_ == 0) part.response = json_response(format_->whole(results_));
  }

  void handle(std::size_t index, const Failed& event, ReplyPart& part) {
    log_warning("request {}, task {} failed: {}", request_id, jobs_[index], event.message);
    cancel();
    if (!streaming_) {
      part.response = error_response(event);
      return;
    }
    format_->append_error(event, part.text);
    part.finished = true;
  }

  // Ended jobs are ignored by the engine.
  void cancel() {
    for (const JobId job : std::exchange(jobs_, {})) engine_.cancel(job);
  }

  CompletionService& engine_;
  const Generation generation_;
  std::unique_ptr<AnswerFormat> format_;
  std::shared_ptr<Mailbox<TaskEvent>> mailbox_;
  std::vector<JobId> jobs_;
  std::vector<Done> results_;
  std::size_t open_;
  bool streaming_ = false;
};

constexpr std::size_t kIdLength = 32;

// One task for each copy of each prompt. Copies draw from seeds that follow the requested one.
std::vector<GenerationTask> make_tasks(std::vector<TokenIds> prompts, const CompletionRequest& request) {
  const auto echoed = std::make_shared<const EchoedSettings>(request.echoed);
  std::vector<std::shared_ptr<const CompletionParams>> params;
  for (int copy = 0; copy < request.copies; ++copy) {
    CompletionParams own = request.params;
    own.keep_probabilities = !request.stream;
    own.echoed = echoed;
    if (own.sampling.seed != kRandomSeed) own.sampling.seed += static_cast<std::uint32_t>(copy);
    params.push_back(std::make_shared<const CompletionParams>(std::move(own)));
  }
  std::vector<GenerationTask> tasks;
  tasks.reserve(prompts.size() * params.size());
  for (TokenIds& prompt : prompts) {
    for (const auto& own : params) tasks.push_back({prompt, own});
  }
  return tasks;
}

// What is a little too long for a slot is refused in its turn, as llama-server does. Millions of tokens are not kept
// until then.
std::optional<Response> refused_as_far_too_long(const std::vector<TokenIds>& prompts, std::int64_t context) {
  constexpr std::int64_t kAlwaysKept = 1 << 17;
  for (const TokenIds& prompt : prompts) {
    const std::int64_t size = std::ssize(prompt);
    if (size <= std::max(2 * context, kAlwaysKept)) continue;
    Failed failed;
    failed.kind = ErrorKind::context_overflow;
    failed.message =
        fmt::format("the request of {} tokens exceeds the available context size of {} tokens", size, context);
    failed.prompt_tokens = static_cast<int>(size);
    failed.context = static_cast<int>(context);
    return error_response(failed);
  }
  return std::nullopt;
}

}  // namespace

std::unique_ptr<PendingReply> make_generation_reply(CompletionService& engine, Generation generation,
                                                    MakeFormat make_format) {
  return std::make_unique<GenerationReply>(engine, std::move(generation), make_format);
}

Reply generate(const App& app, CompletionRequest request, std::vector<TokenIds> prompts, MakeFormat make_format) {
  if (auto refused = refused_as_far_too_long(prompts, app.engine->slot_context())) return std::move(*refused);
  Generation generation;
  generation.tasks = make_tasks(std::move(prompts), request);
  generation.request = std::move(request);
  generation.tokenizer = app.tokenizer;
  generation.model = app.model.id;
  generation.id = "chatcmpl-" + random_id(kIdLength);
  generation.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return make_generation_reply(*app.engine, std::move(generation), make_format);
}

}  // namespace bankml
