package offline

// Why blocks are left as they are.
const (
	SourceRotten = sourceRotten
	TargetRight  = targetRight
)
