#pragma once
// The command line and environment in llama-server's spelling, turned into one options struct per layer.
