// C ABI of the Rust library rust/text: tokenizer and chat template. Text is UTF-8 with a size (a broken sequence is
// read as U+FFFD). A function that can fail fills *error and returns false or NULL; results belong to the caller and
// are freed by the free function of their type. No panic crosses. Handles are immutable: any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_tokenizer tutti_tokenizer;
typedef struct tutti_template tutti_template;

typedef struct {
  uint8_t* data;
  size_t size;
} tutti_bytes;

typedef struct {
  int32_t* data;
  size_t size;
} tutti_ids;

typedef struct {
  tutti_ids ids;
  tutti_bytes text;
  bool in_reasoning;
} tutti_prompt;

void tutti_bytes_free(tutti_bytes bytes);
void tutti_ids_free(tutti_ids ids);

// config (tokenizer_config.json) may be NULL. Problems, one per line.
tutti_tokenizer* tutti_tokenizer_new(const uint8_t* json, size_t json_size, const uint8_t* config, size_t config_size,
                                     tutti_bytes* error);
void tutti_tokenizer_free(tutti_tokenizer* tokenizer);
bool tutti_tokenizer_encode(const tutti_tokenizer* tokenizer, const uint8_t* text, size_t size, bool with_added,
                            tutti_ids* ids, tutti_bytes* error);
// All ids from 0: one byte kind (0 no token, 1 ordinary, 2 added, 3 added and special), uint32 size, the bytes.
bool tutti_tokenizer_table(const tutti_tokenizer* tokenizer, tutti_bytes* table, tutti_bytes* error);
int32_t tutti_tokenizer_eos(const tutti_tokenizer* tokenizer);  // -1: none

tutti_template* tutti_template_new(const uint8_t* source, size_t size, const tutti_tokenizer* tokenizer,
                                   bool special_tokens_in_text, tutti_bytes* error);
void tutti_template_free(tutti_template* t);
// The tokenizer must be the one that the template was made with. open: the prompt ends after the content of the last
// message.
bool tutti_template_render(const tutti_template* t, const tutti_tokenizer* tokenizer, const uint8_t* context,
                           size_t size, bool open, tutti_prompt* prompt, tutti_bytes* error);
bool tutti_template_accepts_late_system(const tutti_template* t);
bool tutti_template_variables(const tutti_template* t, tutti_bytes* names, tutti_bytes* error);  // one per line

#ifdef __cplusplus
}
#endif
