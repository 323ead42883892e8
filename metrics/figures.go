package metrics

import (
	"slices"
	"time"

	"ankole.storage/controlplane/process/engineclient"
)

// Figures are what is reported about objects.
type Figures struct {
	// Points by metric.
	Points map[string][]Point
	// Engines are the running ones whose rates are to be asked for.
	Engines []Engine
	// Rebuilds are those under way, and those that have ended well.
	Rebuilds []Rebuild
	// Pods are those of instance managers and managers, Nodes the names of all nodes.
	Pods  []Pod
	Nodes []string
}

// Point is one sample: the values of the metric's labels in their order, and its value.
type Point struct {
	Labels []string
	Value  float64
}

// Engine is a running engine of a volume.
type Engine struct {
	Volume string
	Name   string
	// Address is "ip:port" of the engine, Proxy that of the proxy in its instance manager.
	Address string
	Proxy   string
	// Labels are the values of labelsVolume.
	Labels []string
}

// Rebuild is a replica that is made equal to the others.
type Rebuild struct {
	// Labels are those of longhorn_engine_rebuild_progress.
	Labels []string
	// Percent is 0 to 100. Running: it is under way; otherwise it has ended well.
	Percent int
	Running bool
}

// Pod is one of an instance manager, or of a manager.
type Pod struct {
	Name, Node string
	// Type is that of the instance manager, empty for a manager.
	Type string
	// Proxy is "ip:port" of its proxy; empty while it does not run.
	Proxy string
}

// add notes a sample.
func (s *Figures) add(metric string, value float64, labels ...string) {
	if s.Points == nil {
		s.Points = map[string][]Point{}
	}
	s.Points[metric] = append(s.Points[metric], Point{labels, value})
}

// take adds the points of others, which are not changed.
func (s *Figures) take(from *Figures) {
	for metric, points := range from.Points {
		if s.Points == nil {
			s.Points = map[string][]Point{}
		}
		s.Points[metric] = slices.Concat(s.Points[metric], points)
	}
}

// oneOf notes a sample for each of the possible values of the last label, 1 for the present one.
func oneOf[S ~string](s *Figures, metric string, present S, possible []S, labels ...string) {
	for _, p := range possible {
		s.add(metric, one(p == present), with(labels, string(p))...)
	}
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// unix is a time of an object in seconds; 0 if there is none.
func unix(text string) float64 {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0
	}
	return float64(at.Unix())
}

// States returns the newest state that an engine has told, nil if there is none.
type States func(engine string) *engineclient.State
