package resource

// VolumeRates are what the users of a volume do, as its engine has counted it in the last whole
// second. It is our addition.
type VolumeRates struct {
	Volume string `json:"volume"`
	// Known: the engine has answered. Otherwise, as of a volume that is not attached, all are 0.
	Known bool `json:"known"`
	// ReadBytes and WriteBytes are per second, as are Reads and Writes.
	ReadBytes  uint64 `json:"readBytes"`
	WriteBytes uint64 `json:"writeBytes"`
	Reads      uint64 `json:"reads"`
	Writes     uint64 `json:"writes"`
	// ReadNanos and WriteNanos are the mean times of one, 0 where there was none.
	ReadNanos  uint64 `json:"readNanos"`
	WriteNanos uint64 `json:"writeNanos"`
}
