package schedule

// MayGrow says whether the replicas of a volume on a disk may become `bytes` larger together. It is
// the rule of a new replica, except that what is to be added counts as taken at once, and that
// reserved space counts as free.
func (d Disk) MayGrow(bytes int64, p Policy) bool {
	if d.Maximum <= 0 || bytes < 0 {
		return false
	}
	used := d.Maximum - d.Available - d.Reserved
	limit := percent(d.Maximum-d.Reserved, p.OverProvisioningPercent)
	physical := used <= d.Maximum-percent(d.Maximum, p.MinimalAvailablePercent)-bytes && used <= limit-bytes
	provisioned := d.Scheduled <= limit-bytes
	return physical && provisioned
}
