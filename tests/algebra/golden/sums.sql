-- SELECT a, count(*) AS n, sum(b) AS total, avg(x) AS mean FROM r GROUP BY a

-- @: sums, key a, changes paired
SELECT
  `a`,
  `n`,
  `total`,
  `mean`,
  `_hw_rows`,
  `_hw_total_count`,
  `_hw_total_sum`,
  `_hw_mean_count`,
  `_hw_mean_sum`,
  `_hw_old_a`,
  `_hw_old_n`,
  `_hw_old_total`,
  `_hw_old_mean`,
  `_hw_old__hw_rows`,
  `_hw_old__hw_total_count`,
  `_hw_old__hw_total_sum`,
  `_hw_old__hw_mean_count`,
  `_hw_old__hw_mean_sum`,
  `_hw_file`,
  `_hw_position`,
  `_hw_row`,
  `_hw_is`,
  `_hw_was`
FROM (
  SELECT
    `a` AS `a`,
    `_hw_rows` AS `n`,
    (
      CASE WHEN `_hw_total_count` = 0 THEN NULL ELSE `_hw_total_sum` END
    ) AS `total`,
    (
      CASE
        WHEN `_hw_mean_count` = 0
        THEN NULL
        ELSE CAST(`_hw_mean_sum` / `_hw_mean_count` AS DECIMAL(14, 6))
      END
    ) AS `mean`,
    `_hw_rows` AS `_hw_rows`,
    `_hw_total_count` AS `_hw_total_count`,
    `_hw_total_sum` AS `_hw_total_sum`,
    `_hw_mean_count` AS `_hw_mean_count`,
    `_hw_mean_sum` AS `_hw_mean_sum`,
    `_hw_old_a` AS `_hw_old_a`,
    `_hw_old_n` AS `_hw_old_n`,
    `_hw_old_total` AS `_hw_old_total`,
    `_hw_old_mean` AS `_hw_old_mean`,
    `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
    `_hw_old__hw_total_count` AS `_hw_old__hw_total_count`,
    `_hw_old__hw_total_sum` AS `_hw_old__hw_total_sum`,
    `_hw_old__hw_mean_count` AS `_hw_old__hw_mean_count`,
    `_hw_old__hw_mean_sum` AS `_hw_old__hw_mean_sum`,
    `_hw_file` AS `_hw_file`,
    `_hw_position` AS `_hw_position`,
    `_hw_row` AS `_hw_row`,
    `_hw_rows` > 0 AS `_hw_is`,
    NOT `_hw_row` IS NULL AS `_hw_was`
  FROM (
    SELECT
      `a` AS `a`,
      CAST((
        COALESCE(`_hw_old__hw_rows`, 0) + COALESCE(`_hw_d__hw_rows`, 0)
      ) AS BIGINT) AS `_hw_rows`,
      CAST((
        COALESCE(`_hw_old__hw_total_count`, 0) + COALESCE(`_hw_d__hw_total_count`, 0)
      ) AS BIGINT) AS `_hw_total_count`,
      CAST(CASE
        WHEN (
          COALESCE(`_hw_old__hw_total_count`, 0) + COALESCE(`_hw_d__hw_total_count`, 0)
        ) = 0
        THEN NULL
        ELSE (
          COALESCE(`_hw_old__hw_total_sum`, 0) + COALESCE(`_hw_d__hw_total_sum`, 0)
        )
      END AS DECIMAL(38, 0)) AS `_hw_total_sum`,
      CAST((
        COALESCE(`_hw_old__hw_mean_count`, 0) + COALESCE(`_hw_d__hw_mean_count`, 0)
      ) AS BIGINT) AS `_hw_mean_count`,
      CAST(CASE
        WHEN (
          COALESCE(`_hw_old__hw_mean_count`, 0) + COALESCE(`_hw_d__hw_mean_count`, 0)
        ) = 0
        THEN NULL
        ELSE (
          COALESCE(`_hw_old__hw_mean_sum`, 0) + COALESCE(`_hw_d__hw_mean_sum`, 0)
        )
      END AS DECIMAL(38, 2)) AS `_hw_mean_sum`,
      `_hw_old_a` AS `_hw_old_a`,
      `_hw_old_n` AS `_hw_old_n`,
      `_hw_old_total` AS `_hw_old_total`,
      `_hw_old_mean` AS `_hw_old_mean`,
      `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
      `_hw_old__hw_total_count` AS `_hw_old__hw_total_count`,
      `_hw_old__hw_total_sum` AS `_hw_old__hw_total_sum`,
      `_hw_old__hw_mean_count` AS `_hw_old__hw_mean_count`,
      `_hw_old__hw_mean_sum` AS `_hw_old__hw_mean_sum`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM (
      SELECT
        `a`,
        `_hw_d__hw_rows`,
        `_hw_d__hw_total_count`,
        `_hw_d__hw_total_sum`,
        `_hw_d__hw_mean_count`,
        `_hw_d__hw_mean_sum`,
        `_hw_old_a`,
        `_hw_old_n`,
        `_hw_old_total`,
        `_hw_old_mean`,
        `_hw_old__hw_rows`,
        `_hw_old__hw_total_count`,
        `_hw_old__hw_total_sum`,
        `_hw_old__hw_mean_count`,
        `_hw_old__hw_mean_sum`,
        `_hw_file`,
        `_hw_position`,
        `_hw_row`
      FROM (
        SELECT
          `a`,
          SUM(`_hw_w`) AS `_hw_d__hw_rows`,
          SUM(CASE WHEN NOT `b` IS NULL THEN `_hw_w` ELSE 0 END) AS `_hw_d__hw_total_count`,
          SUM(CASE WHEN `_hw_w` < 0 THEN -(
            `b`
          ) ELSE `b` END) AS `_hw_d__hw_total_sum`,
          SUM(CASE WHEN NOT `x` IS NULL THEN `_hw_w` ELSE 0 END) AS `_hw_d__hw_mean_count`,
          SUM(CASE WHEN `_hw_w` < 0 THEN -(
            `x`
          ) ELSE `x` END) AS `_hw_d__hw_mean_sum`
        FROM (
          SELECT
            `a` AS `a`,
            `b` AS `b`,
            `x` AS `x`,
            `rowid` AS `r_rowid`,
            `_hw_w`
          FROM `r@delta`
        ) AS _t
        GROUP BY
          `a`
      ) AS _l
      LEFT JOIN (
        SELECT
          `a` AS `_hw_old_a`,
          `n` AS `_hw_old_n`,
          `total` AS `_hw_old_total`,
          `mean` AS `_hw_old_mean`,
          `_hw_rows` AS `_hw_old__hw_rows`,
          `_hw_total_count` AS `_hw_old__hw_total_count`,
          `_hw_total_sum` AS `_hw_old__hw_total_sum`,
          `_hw_mean_count` AS `_hw_old__hw_mean_count`,
          `_hw_mean_sum` AS `_hw_old__hw_mean_sum`,
          `_hw_file` AS `_hw_file`,
          `_hw_position` AS `_hw_position`,
          `_hw_row` AS `_hw_row`
        FROM `@@old`
      ) AS _r
        ON `a` IS NOT DISTINCT FROM `_hw_old_a`
    ) AS _t
  ) AS _t
) AS _t
WHERE
  (
    `_hw_is` OR `_hw_was`
  )
  AND (
    NOT (
      (
        `_hw_is` AND `_hw_was`
      )
      AND (
        `_hw_rows` IS NOT DISTINCT FROM `_hw_old__hw_rows`
        AND `_hw_total_count` IS NOT DISTINCT FROM `_hw_old__hw_total_count`
        AND `_hw_total_sum` IS NOT DISTINCT FROM `_hw_old__hw_total_sum`
        AND `_hw_mean_count` IS NOT DISTINCT FROM `_hw_old__hw_mean_count`
        AND `_hw_mean_sum` IS NOT DISTINCT FROM `_hw_old__hw_mean_sum`
      )
    )
  )
