package metrics

import (
	"slices"
	"time"

	"ankole.storage/controlplane/engineclient"
)

// Share is what the manager of one node reports about objects. The leader makes it; it travels as
// JSON between managers, which may be of different versions: whoever reads one leaves out what is
// not in its own Definitions.
type Share struct {
	// AgeMillis is how old it was when it was sent, in milliseconds: clocks of nodes differ.
	AgeMillis int64 `json:"ageMillis"`
	// Points by metric.
	Points map[string][]Point `json:"points"`
	// Engines are the running ones whose rates are to be asked for.
	Engines []Engine `json:"engines,omitempty"`
	// Rebuilds are those under way, and those that have ended well.
	Rebuilds []Rebuild `json:"rebuilds,omitempty"`
	// Pods are the instance managers on the node.
	Pods []Pod `json:"pods,omitempty"`
}

// Point is one sample: the values of the metric's labels in their order, and its value.
type Point struct {
	Labels []string `json:"l,omitempty"`
	Value  float64  `json:"v"`
}

// Engine is a running engine of a volume.
type Engine struct {
	Volume string `json:"volume"`
	Name   string `json:"name"`
	// Address is "ip:port" of the engine, Proxy that of the proxy in its instance manager.
	Address string `json:"address"`
	Proxy   string `json:"proxy"`
	// Labels are the values of labelsVolume.
	Labels []string `json:"labels"`
}

// Rebuild is a replica that is made equal to the others.
type Rebuild struct {
	// Labels are those of longhorn_engine_rebuild_progress.
	Labels []string `json:"labels"`
	// Percent is 0 to 100. Running: it is under way; otherwise it has ended well.
	Percent int  `json:"percent"`
	Running bool `json:"running,omitempty"`
}

// Pod is an instance manager.
type Pod struct {
	Name string `json:"name"`
	Type string `json:"type"`
	// Proxy is "ip:port" of its proxy; empty while it does not run.
	Proxy string `json:"proxy,omitempty"`
}

// add notes a sample.
func (s *Share) add(metric string, value float64, labels ...string) {
	if s.Points == nil {
		s.Points = map[string][]Point{}
	}
	s.Points[metric] = append(s.Points[metric], Point{labels, value})
}

// take adds the points of another share, which is not changed.
func (s *Share) take(from *Share) {
	for metric, points := range from.Points {
		if s.Points == nil {
			s.Points = map[string][]Point{}
		}
		s.Points[metric] = slices.Concat(s.Points[metric], points)
	}
}

// oneOf notes a sample for each of the possible values of the last label, 1 for the present one.
func oneOf[S ~string](s *Share, metric string, present S, possible []S, labels ...string) {
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
