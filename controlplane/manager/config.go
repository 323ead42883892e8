package manager

// Config is everything the process is told from outside.
type Config struct {
	// Namespace is where all objects live (env POD_NAMESPACE).
	Namespace string
	// NodeName is the node this Pod runs on (env NODE_NAME).
	NodeName string
}
