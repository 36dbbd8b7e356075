package session

// The keys of one sandbox share a hash tag, so that Redis Cluster keeps them
// in one slot and Lua may touch them together:
//
//	cubepod:{<id>}:record    hash: doc (the Record as JSON), rev (raised by each
//	                         write), fence (number of the last lease)
//	cubepod:{<id>}:lease     string: the holder of the lease, with a TTL
//	cubepod:{<id>}:activity  string: unix seconds of the last API call or panel
//	                         input, with a TTL
//
// The lists are hints. They are written before the record, checked against it,
// and repaired by the janitor:
//
//	cubepod:sandboxes        sorted set of ids by creation, unix milliseconds
//	cubepod:ends             sorted set of ids by when the janitor looks at them
//	                         next, EndAt at the latest, unix milliseconds
//
//	cubepod:standbys:<name>  set of ids of a template's standbys
//
// cubepod:janitor is held, with a TTL, by the replica that does the janitor's
// work. cubepod:deployment is a random word that tells the objects of this
// Redis' sandboxes from those of another on the same host.
//
// ChangedChannel carries the id of each record that was written, after the
// write.
const (
	SandboxesKey   = "cubepod:sandboxes"
	EndsKey        = "cubepod:ends"
	ChangedChannel = "cubepod:changed"
)

// DocField is the field of the record's hash that holds the JSON document.
const DocField = "doc"

// RecordKey is the key of id's record.
func RecordKey(id ID) string { return "cubepod:{" + string(id) + "}:record" }

// LeaseKey is the key of id's lease.
func LeaseKey(id ID) string { return "cubepod:{" + string(id) + "}:lease" }

// StandbysKey is the key of a template's standbys.
func StandbysKey(template string) string { return "cubepod:standbys:" + template }

// ActivityKey is the key of id's last activity.
func ActivityKey(id ID) string { return "cubepod:{" + string(id) + "}:activity" }
