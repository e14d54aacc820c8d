package discover

// Kind is a provider type of the configuration.
type Kind string

// The kinds that can be told apart, and OpenAI for a server that is only given
// by hand.
const (
	Ollama   Kind = "ollama"
	LlamaCpp Kind = "llamacpp"
	VLLM     Kind = "vllm"
	LMStudio Kind = "lmstudio"
	Lemonade Kind = "lemonade"
	MLX      Kind = "mlx"
	OpenAI   Kind = "openai"
)

// Kinds lists all kinds in the order in which a server is tried for them: those
// with the plainest marks first, because several imitate Ollama and llama.cpp.
func Kinds() []Kind {
	return []Kind{Lemonade, LlamaCpp, Ollama, LMStudio, VLLM, MLX, OpenAI}
}

// Server is one inference server.
type Server struct {
	Kind Kind
	// Address is its host:port, for people.
	Address string
	// BaseURL is its root, without a trailing slash and without /v1.
	BaseURL string
	// Version is what it says of itself; "" if it says nothing.
	Version string
	// Models are the models it lists, in its order, each once.
	Models []Model
	// Capacity is how many requests it says it takes at once; 0 if it does not.
	Capacity int
}

// Model is a model of a server.
type Model struct {
	// ID is the server's own name for it.
	ID string
	// Chat is false for a model that is known to answer no chat: embeddings,
	// rerankers, speech, images.
	Chat bool
}
