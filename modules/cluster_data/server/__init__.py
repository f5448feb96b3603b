"""
The server half: receives rows, keeps them, and answers queries.

    module.py        the module
    receiver.py      messages of the agents that publish
    store/           the rows in SQLite
    sources/         the rows of all kas
    rights.py        access reviews of readers, and their remembered results
    rights_notices.py  notices of agents that rights have changed
    work_budget.py   processor time of each user
    named_clusters.py  clusters that a request names
    reader.py        answers to a reader, only with rows that the reader may see
    applications.py  applications and components, grouped from workloads
    declarations.py  objects that declare an application, and their workloads
    known_components.py  components that kas recognizes
    service_addresses.py  addresses of workloads
    usage.py         CPU and memory of nodes and pods of all clusters
    fleet.py         queries of operators and of GitLab
    live_queries.py  queries that stay, and the changes of their results
    row_feed.py      rows for other modules, as they arrive
    channels.py      channels of ActionCable with rows
    rest.py          queries of users, with their rights
    cached_watches.py  watches from the cache of an agent, for other modules
    cache_path.py    the Kubernetes API from the cache of an agent
"""
