package resource

// DataLoss is what there is of a volume, for a person who has to decide which copies to go on with
// when those with the newest data are lost. It is our addition.
type DataLoss struct {
	Volume string `json:"volume"`
	// RecordEpoch and Generation name the member record; a decision is for this one only.
	RecordEpoch int64 `json:"recordEpoch"`
	Generation  int64 `json:"generation"`
	// Members are the data directories that hold every acknowledged write.
	Members []string `json:"members"`
	// Refused is why no decision is taken now; empty if one is.
	Refused string `json:"refused"`
	// Problem is what the last engine has said that could not start: what it has heard of each copy.
	// Empty if the last one could.
	Problem string     `json:"problem"`
	Copies  []DataCopy `json:"copies"`
	// Decided are the data directories that a person has decided to go on with, for this record.
	Decided []string `json:"decided"`
}

// DataCopy is one replica of a volume.
type DataCopy struct {
	Replica string `json:"replica"`
	// Member is the name of its data directory.
	Member string `json:"member"`
	NodeID string `json:"nodeId"`
	// NodeReady: its process could be started. Whether its data is there only an engine finds out.
	NodeReady bool `json:"nodeReady"`
	// Current: it is a member of the record and holds every acknowledged write, as far as is
	// known: its directory has not been found damaged.
	Current bool `json:"current"`
	// LastInSync is when it was known to have every acknowledged write last (RFC 3339); empty: never.
	LastInSync string `json:"lastInSync"`
	FailedAt   string `json:"failedAt"`
	// Problem is what its process has said that could not start; empty if the last one could. What
	// the copy holds is not known then.
	Problem string `json:"problem"`
}

// AcceptDataLossInput names the copies to go on with, and the record that was shown.
type AcceptDataLossInput struct {
	Members     []string `json:"members"`
	RecordEpoch int64    `json:"recordEpoch"`
	Generation  int64    `json:"generation"`
}
